"""Refusing environments that reach out of their folder: what they reach for will not be where a server uses them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from envpack.environment.inventory import Owners
from envpack.support.errors import EnvironmentBuildError


def refuse_outside(prefix: Path, minor: str, owners: Owners) -> None:
    """Make sure that no Python package of an environment is only a pointer to somewhere else.

    Raises:
        EnvironmentBuildError: kind ``points-outside``: an editable install, or a ``.pth`` file with a path outside;
            names the package.

    """
    site = prefix / "lib" / f"python{minor}" / "site-packages"
    for origin in sorted(site.glob("*.dist-info/direct_url.json")):
        with contextlib.suppress(ValueError, AttributeError):
            told = json.loads(origin.read_text(encoding="utf-8"))
            if told.get("dir_info", {}).get("editable"):
                name = origin.parent.name.partition("-")[0]
                raise _error(f"{name} is installed as editable, its code is in {told.get('url')}", name)
    for file in sorted(site.glob("*.pth")):
        for line in _paths(file):
            if not (site / line).resolve().is_relative_to(prefix.resolve()):
                name = owners.of.get(str(file.relative_to(prefix)), file.name)
                raise _error(f"{file.name} of {name} points to {line}, outside of the environment", name)


def _paths(file: Path) -> Iterator[str]:
    """The lines of a ``.pth`` file that are paths; others are imports or comments."""
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.strip() and not line.startswith(("import ", "import\t", "#")):
            yield line.strip()


def _error(message: str, package: str) -> EnvironmentBuildError:
    return EnvironmentBuildError(
        message,
        kind="points-outside",
        hint=f"require {package} as a folder or a wheel: envpack builds folders to wheels and installs those",
    )
