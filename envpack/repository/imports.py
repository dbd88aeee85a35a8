"""The modules that a model's code imports, read from its source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from envpack.repository.model import version_folders
from envpack.support.bounded_reading import read_text

_MOST_BYTES = 4 << 20
_MOST_FILES = 200
# Of the backend, and of the standard library of older Pythons.
_GIVEN = {"triton_python_backend_utils", "c_python_backend_utils", "asynchat", "asyncore", "distutils", "imp", "smtpd"}


def imported_modules(model_folder: Path) -> dict[str, str]:
    """The modules from elsewhere that the Python files of a model's versions import, each with its first place.

    Imports that a ``try`` or a condition guards are not counted, nor those of a file that changes ``sys.path``.

    Returns:
        For the first part of each module's name, ``"FILE:LINE"``.
    """
    found: dict[str, str] = {}
    own = _names(model_folder)
    for version in version_folders(model_folder):
        files = sorted(version.glob("*.py"))[:_MOST_FILES]
        local = own | _names(version)
        for file in files:
            for module, line in _imports(file):
                if module not in local:
                    found.setdefault(module, f"{file}:{line}")
    return found


def _names(folder: Path) -> set[str]:
    """What a folder's modules and packages may be called."""
    return {entry.name.partition(".")[0] for entry in folder.iterdir()}


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    try:
        text = read_text(file, most=_MOST_BYTES)
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):  # whatever runs the file reports it
        return
    if "sys.path" in text:
        return
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module and not node.level else []
        else:
            if not isinstance(node, (ast.Try, ast.TryStar, ast.If)):
                pending.extend(reversed(list(ast.iter_child_nodes(node))))
            continue
        for name in names:
            module = name.partition(".")[0]
            if module not in sys.stdlib_module_names | _GIVEN:
                yield module, node.lineno
