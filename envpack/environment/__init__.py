"""From requirements to an execution environment that can be moved."""

from envpack.environment.build import build_environment
from envpack.environment.interpreters import Interpreter, available_interpreters, check_minor, interpreter_for
from envpack.environment.store import MANIFEST, Environment, Package, read_environment

__all__ = [
    "MANIFEST",
    "Environment",
    "Interpreter",
    "Package",
    "available_interpreters",
    "build_environment",
    "check_minor",
    "interpreter_for",
    "read_environment",
]
