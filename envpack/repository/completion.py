"""Whether a model can complete its configuration, which decides whether a server has to let it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from envpack.repository.config import ModelConfig
from envpack.repository.folders import version_folders
from envpack.support.bounded_reading import read_source
from envpack.support.placed_files import CONFIG_NAME

_METHOD = "auto_complete_config"
_CLASS = "TritonPythonModel"
_MOST_BYTES = 1 << 20  # of a source
_CODE = "model.py"
_OTHER_BINDING = re.compile(
    rf"^\s*class {_CLASS}\s*\((?!\s*(object)?\s*\))|{_CLASS}\s*=[^=]|\bimport\b.*({_CLASS}|\*)", re.MULTILINE
)


def may_complete(folder: Path, config: ModelConfig) -> bool:
    """Whether a server that completes configurations could serve a model in another way than one that does not.

    A server waits a second for each completion. It is in vain if the configuration names all inputs and outputs, and
    the model's class has no base from which it could inherit `auto_complete_config`. What cannot be decided is True.
    """
    if not (folder / CONFIG_NAME).is_file() or not config.backend or not config.input or not config.output:
        return True
    name = config.default_model_filename or _CODE
    codes = [version / name for version in version_folders(folder)]
    return any(map(_mentions_method, _sources(folder))) or any(map(_may_inherit, codes))


def _sources(folder: Path) -> Iterator[Path]:
    yield from folder.glob("*.py")
    for version in version_folders(folder):
        yield from version.rglob("*.py")


def _mentions_method(source: Path) -> bool:
    try:
        return _METHOD in read_source(source, most=_MOST_BYTES)
    except (OSError, ValueError):
        return True


def _may_inherit(code: Path) -> bool:
    """Whether the model's class may get a method from elsewhere; False for a file that has no such class."""
    try:
        text = read_source(code, most=_MOST_BYTES)
    except (OSError, ValueError):
        return False  # no server can load it either
    if _CLASS not in text:
        return bool(_OTHER_BINDING.search(text))  # import *
    try:
        tree = ast.parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # wrong, or written for a newer Python
        return bool(_OTHER_BINDING.search(text))
    binds = [node for node in ast.walk(tree) if _binds_class(node)]
    if len(binds) != 1 or binds[0] not in tree.body or not isinstance(binds[0], ast.ClassDef):
        return True
    found = binds[0]
    bases = [base for base in found.bases if not (isinstance(base, ast.Name) and base.id == "object")]
    return bool(bases or found.keywords or found.decorator_list)


def _binds_class(node: ast.AST) -> bool:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return name == _CLASS
        case ast.Name(id=name, ctx=ast.Store()):
            return name == _CLASS
        case ast.alias(name=name, asname=asname):
            return (asname or name) in (_CLASS, "*")
    return False
