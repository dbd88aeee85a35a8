"""Conda packages: the engine that resolves and installs them, and the user's conda settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.conda.engine import (
        ENGINE_HINT as ENGINE_HINT,
        EngineError as EngineError,
        index_channel as index_channel,
    )
    from envpack.conda.install import PREFIX_PLACEHOLDER as PREFIX_PLACEHOLDER, install_conda as install_conda
    from envpack.conda.resolve import resolve_conda as resolve_conda
    from envpack.conda.settings import (
        Channels as Channels,
        CondaSettings as CondaSettings,
        Credentials as Credentials,
        read_conda_settings as read_conda_settings,
    )
    from envpack.conda.specs import spec_channels as spec_channels

__getattr__, __all__ = lazy_imports(__name__, __file__)
