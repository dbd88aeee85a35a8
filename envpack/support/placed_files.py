"""The files and folders that envpack writes beside a model's code; they are no sources of a project in that folder."""

from __future__ import annotations

import re
from pathlib import Path

CONFIG_NAME = "config.pbtxt"
LOCK_NAME = "envpack.lock"
MANIFEST = "envpack-environment.json"
STUB_NAME = "triton_python_backend_stub"
RELEASE_FILE = f"{STUB_NAME}.release"
_CUSTOM_CONFIGS = "configs"  # a folder of further configurations, which are edited like the first
_NAMES = {CONFIG_NAME, LOCK_NAME, STUB_NAME, RELEASE_FILE}
_ARCHIVE = re.compile(r"python3\.[0-9]+\.tar(\.gz)?(\.json)?")
_BACKEND = re.compile(r"python_3_[0-9]+")


def is_placed_file(file: Path) -> bool:
    """Whether a file has a name under which envpack writes a lock, a configuration, a stub or an archive."""
    custom = file.suffix == ".pbtxt" and file.parent.name == _CUSTOM_CONFIGS
    return file.name in _NAMES or custom or _ARCHIVE.fullmatch(file.name) is not None


def is_placed_folder(folder: Path) -> bool:
    """Whether a folder is an environment or a backend directory that envpack made."""
    return (folder / MANIFEST).is_file() or (
        _BACKEND.fullmatch(folder.name) is not None and (folder / STUB_NAME).is_file()
    )
