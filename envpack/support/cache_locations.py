"""The user's folders of envpack, by the XDG rules: a cache, which can be rebuilt, and data, which cannot."""

from __future__ import annotations

import os
from pathlib import Path

from envpack.support.home_folders import no_home


def cache_root() -> Path:
    """The cache folder: ``ENVPACK_CACHE_DIR`` if set, else ``$XDG_CACHE_HOME/envpack`` (``~/.cache/envpack``).

    Raises:
        InputError: kind ``no-home``: no variable is set, and the user has no home folder.
    """
    override = os.environ.get("ENVPACK_CACHE_DIR")
    if override:
        return Path(override)
    import platformdirs

    try:
        return platformdirs.user_cache_path("envpack")
    except RuntimeError:
        raise no_home("this user has no home folder for the cache", "ENVPACK_CACHE_DIR") from None


def data_root() -> Path:
    """The data folder: ``$XDG_DATA_HOME/envpack`` (``~/.local/share/envpack``).

    Raises:
        InputError: as `cache_root`.
    """
    import platformdirs

    try:
        return platformdirs.user_data_path("envpack")
    except RuntimeError:
        raise no_home("this user has no home folder for data", "XDG_DATA_HOME") from None
