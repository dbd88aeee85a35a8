"""How large a model's environment is, by package."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from envpack.archive import sidecar_of
from envpack.environment import MANIFEST
from envpack.repository import Model, environment_of
from envpack.verification.verdict import EnvironmentSize, PackageSize

_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


def measure_environment(model: Model) -> EnvironmentSize | None:
    """Read it from the environment's own description, or look at the files of a folder that has none.

    None for a model without an environment, and for an archive that says nothing of itself: unpacking it to see would
    take longer than the verdict.
    """
    place = environment_of(model)
    if place is None:
        return None
    told = _told(place / MANIFEST if place.is_dir() else sidecar_of(place))
    sizes = _by_package(told) if told else _measured(place) if place.is_dir() else Counter()
    if not sizes:
        return None
    packages = tuple(PackageSize(name, size) for name, size in sizes.most_common())
    return EnvironmentSize(str(place), "folder" if place.is_dir() else "archive", sizes.total(), packages)


def _told(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _by_package(told: dict[str, Any]) -> Counter[str]:
    try:
        sizes = Counter({str(package["name"]): int(package["size"]) for package in told["packages"]})
        sizes[""] += max(0, int(told["size"]) - sizes.total())
    except (KeyError, TypeError, ValueError):
        return Counter()
    return +sizes


def _measured(folder: Path) -> Counter[str]:
    """Packages by their folder among Python's packages; all else has no name."""
    sizes: Counter[str] = Counter()
    for file in folder.rglob("*"):
        if not file.is_symlink() and file.is_file():
            sizes[_owner(file.relative_to(folder).parts)] += file.stat().st_size
    return sizes


def _owner(parts: tuple[str, ...]) -> str:
    for name in _PACKAGE_FOLDERS:
        if name in parts and parts.index(name) + 2 < len(parts):
            return parts[parts.index(name) + 1].partition("-")[0]
    return ""
