"""Models on a real server while they are written: what changes is built and loaded again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.development.debugger import opened_debugger
    from envpack.development.session import Session, runtime_chooser
    from envpack.development.state import ModelState
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
