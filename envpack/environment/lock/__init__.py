"""From requirements to a lock: every package by its hash, for one target."""

from envpack.environment.lock.file import LOCK_NAME, format_lock, read_lock, write_lock
from envpack.environment.lock.make import LOCAL, LockOptions, lock_requirements
from envpack.environment.lock.model import Lock, Target

__all__ = [
    "LOCAL",
    "LOCK_NAME",
    "Lock",
    "LockOptions",
    "Target",
    "format_lock",
    "lock_requirements",
    "read_lock",
    "write_lock",
]
