"""Checks that an installed execution environment must pass before it enters the store."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from envpack.environment.inventory import Owners
from envpack.support.bounded_reading import read_json, read_text
from envpack.support.errors import EnvironmentBuildError
from envpack.support.isolation import bare_environment
from envpack.support.platforms import libpython_name
from envpack.support.processes import CompletedProcess, run
from envpack.support.uv import run_uv

_STARTING = 120.0  # seconds that a Python may take to start and end


@contextlib.contextmanager
def ended_in_time() -> Iterator[None]:
    """Turn the time limit of a program that starts the environment's Python into an error."""
    try:
        yield
    except subprocess.TimeoutExpired as error:
        raise EnvironmentBuildError(
            f"the environment's Python does not end within {error.timeout:.0f} s, although it has nothing to do",
            kind="environment-broken",
            hint="look for a .pth file or a sitecustomize.py in its packages that waits for something",
        ) from None


def python_output(python: Path, program: str) -> CompletedProcess:
    """Run a short program with the environment's Python, in isolation but with its packages, as a stub does."""
    with ended_in_time():
        return run([python, "-I", "-B", "-c", program], env=bare_environment(), timeout=_STARTING)


def refuse_external_references(prefix: Path, minor: str, owners: Owners) -> None:
    """Reject Python packages that are only a reference to another folder."""
    site = prefix / "lib" / f"python{minor}" / "site-packages"
    for origin in sorted(site.glob("*.dist-info/direct_url.json")):
        with contextlib.suppress(ValueError, AttributeError):
            direct_url = read_json(origin)
            if direct_url.get("dir_info", {}).get("editable"):
                name = origin.parent.name.partition("-")[0]
                raise _error(f"{name} is an editable installation; its code is in {direct_url.get('url')}", name)
    for file in sorted(site.glob("*.pth")):
        for line in _paths(file):
            if _leads_out(site / line, prefix):
                name = owners.of.get(str(file.relative_to(prefix)), file.name)
                raise _error(f"{file.name} of {name} points to {line}, outside of the environment", name)


def require_library(prefix: Path, minor: str) -> None:
    """Check that the Python of an environment can be embedded."""
    library = prefix / "lib" / libpython_name(minor)
    if not library.is_file():
        raise EnvironmentBuildError(
            f"the Python package has no {library.name}, which Triton's stub requires",
            kind="static-interpreter",
            hint="use a channel whose Python is built with --enable-shared, or the channel 'local'",
        )


def check_consistency(prefix: Path, python: Path) -> None:
    """Check that the dependencies of each installed Python package are installed, in versions that it accepts."""
    with ended_in_time():
        ended = run_uv(["pip", "check", "--python", python], timeout=_STARTING)
    wrong = [line.strip() for line in ended.stderr.splitlines() if re.match(r"The package .* requires ", line)]
    if not wrong:  # uv also reports incomplete records, which some conda packages have, and which do no harm
        return
    raise EnvironmentBuildError(
        "\n".join(["packages are incompatible", *wrong]),
        kind="inconsistent",
        where=str(prefix),
        hint="install both with conda or both with pip, or require a compatible version",
    )


def _paths(file: Path) -> Iterator[str]:
    """The lines of a ``.pth`` file that are paths, not imports or comments."""
    if not file.is_file():
        return
    for line in read_text(file, errors="replace").splitlines():
        if line.strip() and not line.startswith(("import ", "import\t", "#")):
            yield line.strip()


def _leads_out(path: Path, prefix: Path) -> bool:
    """Whether a path leads out of the environment; what is no possible path leads nowhere, and Python ignores it."""
    try:
        return not path.resolve().is_relative_to(prefix.resolve())
    except (OSError, RuntimeError, ValueError):
        return False


def _error(message: str, package: str) -> EnvironmentBuildError:
    return EnvironmentBuildError(
        message,
        kind="points-outside",
        hint=f"require {package} as a folder or a wheel; envpack builds a wheel from a folder and installs that",
    )
