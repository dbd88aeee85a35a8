"""The user's folders of envpack, by the XDG rules: a cache, which can be rebuilt, and data, which cannot."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """The cache folder: ``ENVPACK_CACHE_DIR`` if set, else ``$XDG_CACHE_HOME/envpack`` (``~/.cache/envpack``)."""
    override = os.environ.get("ENVPACK_CACHE_DIR")
    if override:
        return Path(override)
    import platformdirs

    return platformdirs.user_cache_path("envpack")


def data_root() -> Path:
    """The data folder: ``$XDG_DATA_HOME/envpack`` (``~/.local/share/envpack``)."""
    import platformdirs

    return platformdirs.user_data_path("envpack")
