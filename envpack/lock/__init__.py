"""Requirements → lock: every package by its hash, for one target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.lock.lockfile import (
        LOCK_NAME as LOCK_NAME,
        format_lock as format_lock,
        parse_lock as parse_lock,
        read_lock as read_lock,
        write_lock as write_lock,
    )
    from envpack.lock.model import (
        RECIPE as RECIPE,
        Lock as Lock,
        digest_requirements as digest_requirements,
        lock_key as lock_key,
    )
    from envpack.lock.pip import to_pylock as to_pylock
    from envpack.lock.resolve import (
        LOCAL_CHANNEL as LOCAL_CHANNEL,
        LockOptions as LockOptions,
        lock_requirements as lock_requirements,
    )
    from envpack.lock.uv import (
        failing_requirement as failing_requirement,
        platform_name as platform_name,
        uv_error as uv_error,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
