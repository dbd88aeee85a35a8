"""From requirements to an execution environment that can be moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.first_use import imported_at_first_use

if TYPE_CHECKING:
    from envpack.environment.build import build_environment, environment_of
    from envpack.environment.interpreters import Interpreter, available_interpreters, check_minor, interpreter_for
    from envpack.environment.lock import Lock, read_lock
    from envpack.environment.store import MANIFEST, Environment, Package, read_environment

# Where each public name lives. Whoever packs what is built needs none of what builds.
_HOMES = {
    "MANIFEST": "envpack.environment.store",
    "Environment": "envpack.environment.store",
    "Interpreter": "envpack.environment.interpreters",
    "Lock": "envpack.environment.lock",
    "Package": "envpack.environment.store",
    "available_interpreters": "envpack.environment.interpreters",
    "build_environment": "envpack.environment.build",
    "check_minor": "envpack.environment.interpreters",
    "environment_of": "envpack.environment.build",
    "interpreter_for": "envpack.environment.interpreters",
    "read_environment": "envpack.environment.store",
    "read_lock": "envpack.environment.lock",
}

__all__ = [
    "MANIFEST",
    "Environment",
    "Interpreter",
    "Lock",
    "Package",
    "available_interpreters",
    "build_environment",
    "check_minor",
    "environment_of",
    "interpreter_for",
    "read_environment",
    "read_lock",
]

__getattr__ = imported_at_first_use(__name__, _HOMES)
