"""Lazy public names of a package: importing all of them would take longer than ``--help``."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# A line of the block, or several in parentheses.
_IMPORT = re.compile(r"^    from ([\w.]+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?: as \w+)?")


def lazy_imports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` for the names that a package imports for type checkers."""
    modules = _modules_of(Path(file))
    names = sorted(modules)

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return find, lambda: [*vars(sys.modules[package]), *names], names


def _modules_of(file: Path) -> dict[str, str]:
    """The module of each name in ``if TYPE_CHECKING:``; a parser of Python would take milliseconds."""
    block = file.read_text(encoding="utf-8").partition("\nif TYPE_CHECKING:\n")[2].partition("\nelse:\n")[0]
    return {name: module for module, lines, line in _IMPORT.findall(block) for name in _NAME.findall(lines or line)}
