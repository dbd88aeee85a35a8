"""What is made in a folder with code, and is no source of a project there: by envpack beside a model, or by builds."""

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
_BUILT = ("build", "dist")


def is_placed_file(file: Path) -> bool:
    """Whether a file in a model's folder has a name under which envpack writes a lock, a configuration, a stub, …."""
    if file.suffix == ".pbtxt" and file.parent.name == _CUSTOM_CONFIGS:
        return _has_version(file.parent.parent)
    return (file.name in _NAMES or _ARCHIVE.fullmatch(file.name) is not None) and _has_version(file.parent)


def _has_version(folder: Path) -> bool:
    """Whether a folder is that of a Python model; a package may have data with the same names."""
    return any(entry.name[:1].isdigit() and (entry / "model.py").exists() for entry in folder.iterdir())


def is_placed_folder(folder: Path) -> bool:
    """Whether a folder is an environment or a backend directory that envpack made."""
    return (folder / MANIFEST).is_file() or (
        _BACKEND.fullmatch(folder.name) is not None and (folder / STUB_NAME).is_file()
    )


def is_built_folder(folder: Path, project: Path) -> bool:
    """Whether building a local project makes a folder; below the top of the project, build and dist are packages."""
    return folder.name.endswith(".egg-info") or (folder.parent == project and folder.name in _BUILT)
