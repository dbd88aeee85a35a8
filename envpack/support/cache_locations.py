"""The user's folders of envpack, by the XDG rules: a cache, which can be rebuilt, and data, which cannot."""

from __future__ import annotations

import os
from pathlib import Path

from envpack.support.errors import InputError
from envpack.support.home_folders import expand_home, no_home


def cache_root() -> Path:
    """The cache folder: ``ENVPACK_CACHE_DIR`` if set, else ``$XDG_CACHE_HOME/envpack`` (``~/.cache/envpack``).

    Raises:
        InputError: kind ``no-home``: no variable is set, and the user has no home folder; kind ``name-not-text``: its
            name is not UTF-8, so addresses of packages in it cannot be written.
    """
    override = os.environ.get("ENVPACK_CACHE_DIR")
    if override:
        return _as_text(expand_home(override, "ENVPACK_CACHE_DIR"))
    import platformdirs

    try:
        return _as_text(platformdirs.user_cache_path("envpack"))
    except RuntimeError:
        raise no_home("this user has no home folder for the cache", "ENVPACK_CACHE_DIR") from None


def _as_text(folder: Path) -> Path:
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise InputError(
            "the name of the cache folder is not valid UTF-8",
            kind="name-not-text",
            where=ascii(str(folder)),
            hint="set ENVPACK_CACHE_DIR to another folder",
        ) from None
    return folder


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
