"""New models, which `envpack init --template` writes: typed code, configuration, requirements, samples and tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from envpack.recipes import Example
from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError, UsageError
from envpack.support.installation import shipped_folder
from envpack.support.replacement import replaced_folder

_PLACEHOLDER = "MODEL"
_CODE = "MODEL/1/model.py"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # it becomes part of the name of a Python file


def template_names() -> tuple[str, ...]:
    """Names of the templates, sorted."""
    return tuple(sorted(folder.name for folder in shipped_folder("templates").iterdir() if folder.is_dir()))


def templates() -> tuple[Example, ...]:
    """The templates, sorted by name; their titles are the docstrings of their models."""
    return tuple(Example(name, _title(shipped_folder("templates") / name / _CODE)) for name in template_names())


def copy_template(template: str, folder: Path) -> tuple[Path, ...]:
    """Write a model, and the models that it sends requests to, into a repository.

    Args:
        template: name of the template.
        folder: of the model; it does not exist. Its name is the model's, and the folder above it the repository.

    Returns:
        The folders of the models, first that of the model itself.

    Raises:
        UsageError: kind ``unknown-template``.
        InputError: one of the folders exists (``not-empty``), or the name is no Python name (``bad-model-name``).
        OSError: the repository cannot be written.
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
    sources = sorted((shipped_folder("templates") / template).iterdir(), key=lambda source: len(source.name))
    targets = tuple(folder.parent / _named(source.name, folder.name) for source in sources)
    for target in targets:
        if target.exists():
            raise InputError(
                "this folder exists", kind="not-empty", where=str(target), hint="choose another name, or remove it"
            )
    folder.parent.mkdir(parents=True, exist_ok=True)
    for source, target in zip(
        reversed(sources), reversed(targets), strict=True
    ):  # the model itself is complete once it exists
        _copy(source, target, folder.name)
    return targets


def _copy(source: Path, target: Path, name: str) -> None:
    with replaced_folder(target) as partial:
        for file in sorted(path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            copy = partial / _named(str(file.relative_to(source)), name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(_named(read_text(file), name), encoding="utf-8")


def _title(code: Path) -> str:
    return (ast.get_docstring(ast.parse(read_text(code))) or "").rstrip(".")


def _named(text: str, name: str) -> str:
    return text.replace(_PLACEHOLDER, name)
