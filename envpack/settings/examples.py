"""What `envpack init` copies: complete model repositories, and new models from templates.

A wheel has them as one archive. Hundreds of small files, with the byte code that an installer compiles, would take a
megabyte of every installation.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from envpack.support.errors import InputError, UsageError
from envpack.support.folders import check_models_path, whole_path
from envpack.support.replacement import replaced_folder
from envpack.support.temp_dirs import check_fillable, filled_folder

Kind = Literal["recipes", "templates"]
Files = Mapping[str, bytes]

_PACKAGE = Path(__file__).parents[1]
_ARCHIVE = _PACKAGE / "_source" / "examples.zip"
_PLACEHOLDER = "MODEL"
_CODE = "MODEL/1/model.py"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # it becomes part of the name of a Python file


def example_titles(kind: Kind) -> dict[str, str]:
    """What each recipe or template shows, by name: the first line of its README file, or its model's docstring."""

    def title(files: Files) -> str:
        if kind == "recipes":
            return files["README.md"].decode().partition("\n")[0].removeprefix("# ")
        return (ast.get_docstring(ast.parse(files[_CODE])) or "").rstrip(".")

    return {name: title(files) for name, files in example_files(kind).items()}


def copy_recipe(name: str, destination: Path) -> None:
    """Copy a recipe to a folder that does not exist or is empty."""
    known = example_files("recipes")
    if name not in known:
        raise UsageError("unknown-recipe", f"unknown recipe {name!r}", f"known: {', '.join(known)}")
    destination = whole_path(destination)
    check_models_path(destination)
    check_fillable(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    with filled_folder(destination) as partial:
        for path, content in known[name].items():
            (partial / path).parent.mkdir(parents=True, exist_ok=True)
            (partial / path).write_bytes(content)


def copy_template(template: str, folder: Path) -> tuple[Path, ...]:
    """Write a model, and those that it sends requests to, into a repository; returns their folders, its own first."""
    known = example_files("templates")
    if template not in known:
        raise UsageError("unknown-template", f"unknown template {template!r}", f"known: {', '.join(known)}")
    folder = whole_path(folder)
    if not _NAME.fullmatch(folder.name):
        fix = "use letters, digits and _; the first character is no digit"
        raise InputError("bad-model-name", f"{folder.name!r} cannot be the name of the model", fix, str(folder))
    check_models_path(folder)
    files = known[template]
    sources = sorted({path.partition("/")[0] for path in files}, key=len)
    targets = tuple(folder.parent / _named(source, folder.name) for source in sources)
    for target in targets:
        if os.path.lexists(target):
            raise InputError("not-empty", "this folder exists", "choose another name, or remove it", str(target))
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


def _named(text: str, name: str) -> str:
    return text.replace(_PLACEHOLDER, name)


@functools.cache
def example_files(kind: Kind) -> Mapping[str, Files]:
    """The files of each recipe or template: its name → paths in it, with ``/``, in order → contents."""
    files = _packed(kind) if _ARCHIVE.is_file() else _in_checkout(kind)
    examples: dict[str, dict[str, bytes]] = {}
    for path in sorted(files):
        name, _, rest = path.partition("/")
        examples.setdefault(name, {})[rest] = files[path]
    return examples


def _packed(kind: Kind) -> Files:
    prefix = f"{kind}/"
    with zipfile.ZipFile(_ARCHIVE) as archive:
        names = [name for name in archive.namelist() if name.startswith(prefix) and not name.endswith("/")]
        return {name.removeprefix(prefix): archive.read(name) for name in names}


def _in_checkout(kind: Kind) -> Files:
    folder = _PACKAGE.parent / kind
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
