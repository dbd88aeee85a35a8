"""Requirements → lock: every package by its hash, for one target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.lock.lockfile import LOCK_NAME, format_lock, parse_lock, read_lock, write_lock
    from envpack.lock.model import RECIPE, Lock, digest_requirements, lock_key
    from envpack.lock.pip import to_pylock
    from envpack.lock.resolve import LOCAL_CHANNEL, LockOptions, lock_requirements
    from envpack.lock.uv import failing_requirement, platform_name, uv_error
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
