"""New models, which `envpack init --template` writes: typed code, configuration, requirements, samples and tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from envpack.recipes import Example
from envpack.support.errors import InputError, UsageError
from envpack.support.examples import Files, example_files
from envpack.support.replacement import replaced_folder

_PLACEHOLDER = "MODEL"
_CODE = "MODEL/1/model.py"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # it becomes part of the name of a Python file


def template_names() -> tuple[str, ...]:
    """Names of the templates, sorted."""
    return tuple(example_files("templates"))


def templates() -> tuple[Example, ...]:
    """The templates, sorted by name; their titles are the docstrings of their models."""
    return tuple(Example(name, _title(files[_CODE])) for name, files in example_files("templates").items())


def copy_template(template: str, folder: Path) -> tuple[Path, ...]:
    """Write a model, and the models that it sends requests to, into a repository.

    Returns:
        The folders of the models, first that of the model itself.
    """
    if template not in template_names():
        known = ", ".join(template_names())
        raise UsageError(f"unknown template {template!r}", kind="unknown-template", hint=f"known: {known}")
    folder = folder.absolute()
    if not _NAME.fullmatch(folder.name):
        raise InputError(
            f"{folder.name!r} cannot be the name of the model",
            kind="bad-model-name",
            where=str(folder),
            hint="use letters, digits and _; the first character is no digit",
        )
    files = example_files("templates")[template]
    sources = sorted({path.partition("/")[0] for path in files}, key=len)
    targets = tuple(folder.parent / _named(source, folder.name) for source in sources)
    for target in targets:
        if target.exists():
            raise InputError(
                "this folder exists", kind="not-empty", where=str(target), hint="choose another name, or remove it"
            )
    folder.parent.mkdir(parents=True, exist_ok=True)
    for source, target in zip(reversed(sources), reversed(targets), strict=True):  # the model itself comes last
        _write(files, source, target, folder.name)
    return targets


def _write(files: Files, source: str, target: Path, name: str) -> None:
    with replaced_folder(target) as partial:
        for path, content in files.items():
            top, _, rest = path.partition("/")
            if top == source:
                copy = partial / _named(rest, name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(_named(content.decode(), name), encoding="utf-8")


def _title(code: bytes) -> str:
    return (ast.get_docstring(ast.parse(code)) or "").rstrip(".")


def _named(text: str, name: str) -> str:
    return text.replace(_PLACEHOLDER, name)
