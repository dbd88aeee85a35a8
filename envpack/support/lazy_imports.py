"""Lazy public names of a package: importing all of them would take longer than ``--help``."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_imports(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Make the names in the ``if TYPE_CHECKING:`` block of a package importable.

    That block is the only list of the package's public names. Type checkers read it as plain imports; at run time each
    name is imported at its first use.

    Args:
        package: ``__name__`` of the package.
        file: its ``__file__``.

    Returns:
        ``__getattr__`` and ``__all__`` for the package.
    """
    modules = _modules_of(Path(file))

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return find, sorted(modules)


def _modules_of(file: Path) -> dict[str, str]:
    """The module of each name that the file imports for type checkers only."""
    statements = ast.parse(file.read_text(encoding="utf-8")).body
    blocks = [
        node
        for node in statements
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom) and node.module]
    return {name.name: str(node.module) for node in imports for name in node.names}
