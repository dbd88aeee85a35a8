"""Checks that an installed execution environment must pass before it enters the store."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from envpack.environment.inventory import Owners
from envpack.lock import run_uv
from envpack.support.errors import EnvironmentBuildError


def refuse_external_references(prefix: Path, minor: str, owners: Owners) -> None:
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


def require_library(prefix: Path, minor: str) -> None:
    """Make sure that the Python of an environment can be embedded.

    Raises:
        EnvironmentBuildError: kind ``static-interpreter``.

    """
    library = prefix / "lib" / f"libpython{minor}.so.1.0"
    if not library.is_file():
        raise EnvironmentBuildError(
            f"the Python package has no {library.name}, which Triton's stub needs",
            kind="static-interpreter",
            hint="use a channel whose Python is built with --enable-shared, or the channel 'local'",
        )


def check_consistency(prefix: Path, python: Path) -> None:
    """Make sure that each installed Python package finds the others that it needs, in versions that it can do with.

    Raises:
        EnvironmentBuildError: kind ``inconsistent``, with what does not fit.

    """
    ended = run_uv(["pip", "check", "--python", python])
    wrong = [line.strip() for line in ended.stderr.splitlines() if re.match(r"The package .* requires ", line)]
    if not wrong:  # uv also stumbles over incomplete records, which some conda packages have and nobody needs
        return
    raise EnvironmentBuildError(
        "\n".join(["packages do not fit together", *wrong]),
        kind="inconsistent",
        where=str(prefix),
        hint="take both from conda, or both from pip, or name a version that fits",
    )


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
