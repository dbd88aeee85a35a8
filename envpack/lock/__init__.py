"""Requirements → lock: every package by its hash, for one target; and pip packages by uv."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.lock.lockfile import (
        RECIPE,
        Lock,
        digest_requirements,
        lock_key,
        named_by_locks,
        read_lock,
        wheel_not_here,
        write_lock,
    )
    from envpack.lock.pip import install_pip
    from envpack.lock.resolve import LOCAL_CHANNEL, LockOptions, lock_requirements
    from envpack.support.placed_files import LOCK_NAME
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
