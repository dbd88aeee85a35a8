"""Where envpack keeps what can be made again: one cache folder, by the XDG rules."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """The cache folder: ``ENVPACK_CACHE_DIR`` if set, else ``$XDG_CACHE_HOME/envpack`` (``~/.cache/envpack``)."""
    import platformdirs

    override = os.environ.get("ENVPACK_CACHE_DIR")
    return Path(override) if override else platformdirs.user_cache_path("envpack")
