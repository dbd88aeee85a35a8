"""From requirements to an execution environment that can be moved."""

from envpack.environment.build import build_environment, environment_of
from envpack.environment.interpreters import Interpreter, available_interpreters, check_minor, interpreter_for
from envpack.environment.lock import Lock, read_lock
from envpack.environment.store import MANIFEST, Environment, Package, read_environment

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
