"""Finds an installed Triton server, the parts of it that Python models need, and libraries for its LD_PRELOAD."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from envpack.releases import all_releases
from envpack.support.errors import ServerError
from envpack.support.installation import install_command
from envpack.support.isolation import bare_environment
from envpack.support.processes import run

_CONTAINER_HOME = Path("/opt/tritonserver")
_WHEEL = "nvidia-pytriton"
_WHEEL_SERVER = "pytriton/tritonserver/bin/tritonserver"
_STUB = "triton_python_backend_stub"
_LIBRARY = "libtriton_python.so"
# File names of libraries by their common names, preferred ones first.
_KNOWN = {
    "tcmalloc": ("libtcmalloc.so.4", "libtcmalloc_minimal.so.4"),
    "jemalloc": ("libjemalloc.so.2",),
}
_CACHE_LINE = re.compile(r"^\s*(?P<name>\S+) \(.*\) => (?P<path>/.+)$")


@dataclass(frozen=True)
class ServerInstallation:
    """A Triton server on this machine. Nothing is written to it.

    Attributes:
        executable: the ``tritonserver`` program.
        backends: backend directory; it contains ``python/libtriton_python.so``.
        library_path: required value of ``LD_LIBRARY_PATH``: the folder of a wheel's libraries, or the variable's value
            in Triton's image, which contains the driver's libraries; otherwise ``""``.
        stubs: stubs of the installation, by Python minor version.
        release: name of the Triton release, ``""`` if it cannot be determined without starting the server.
    """

    executable: Path
    backends: Path
    library_path: str = ""
    stubs: dict[str, Path] = field(default_factory=dict)
    release: str = ""


def find_server(explicit: Path | None = None, *, search_path: str | None = None) -> ServerInstallation:
    """Find the server to verify with: on PATH, in /opt/tritonserver, or in the nvidia-pytriton wheel."""
    if explicit is not None:
        return _at(explicit)
    on_path = shutil.which("tritonserver", path=search_path)
    for candidate in (Path(on_path) if on_path else None, _CONTAINER_HOME / "bin/tritonserver", _in_wheel()):
        if candidate is not None and candidate.is_file():
            installation = _describe(candidate.resolve())
            if installation is not None:
                return installation
    raise ServerError(
        "no Triton server on this machine: not on PATH, not in /opt/tritonserver, no nvidia-pytriton installed",
        kind="server-missing",
        hint=install_command("server"),
    )


def _at(place: Path) -> ServerInstallation:
    program = next((p for p in (place, place / "bin/tritonserver", place / "tritonserver") if p.is_file()), None)
    installation = _describe(program.resolve()) if program else None
    if installation is None:
        raise ServerError(
            "this is not a Triton server" if program is None else f"this server has no {_LIBRARY} in backends/python",
            kind="server-missing",
            where=str(place),
            hint=f"name the tritonserver program, or install one: {install_command('server')}",
        )
    return installation


def _describe(executable: Path) -> ServerInstallation | None:
    home = executable.parent.parent
    backends = home / "backends"
    if not (backends / "python" / _LIBRARY).is_file():
        return None
    packages = home.parent.parent
    release = _release_in_wheel(packages)
    libraries = packages / f"{_WHEEL.replace('-', '_')}.libs"
    return ServerInstallation(
        executable,
        backends,
        str(libraries) if libraries.is_dir() else _library_path_of_image(home),
        _stubs(home, release),
        release,
    )


def _library_path_of_image(home: Path) -> str:
    return os.environ.get("LD_LIBRARY_PATH", "") if home == _CONTAINER_HOME else ""


def _stubs(home: Path, release: str) -> dict[str, Path]:
    found = {f.parent.name: f for f in sorted((home / "python_backend_stubs").glob(f"*/{_STUB}"))}
    own = home / "backends/python" / _STUB
    if own.is_file():
        known = all_releases().get(release)
        found[known.python if known else ""] = own
    return found


def _in_wheel() -> Path | None:
    try:
        distribution = importlib.metadata.distribution(_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(str(distribution.locate_file(_WHEEL_SERVER)))


def _release_in_wheel(packages: Path) -> str:
    """Name of the release in the wheel that is installed in this folder, or ``""``."""
    versions = {found.version for found in importlib.metadata.distributions(name=_WHEEL, path=[str(packages)])}
    return next((release.name for release in all_releases().values() if release.wheel in versions), "")


def find_preload(wanted: str) -> Path:
    """Find a library for ``LD_PRELOAD``."""
    if "/" in wanted:
        return Path(wanted)
    here = _libraries_of_this_machine()
    found = next((here[name] for name in _KNOWN.get(wanted, (wanted,)) if name in here), None)
    if found is None:
        raise ServerError(
            f"no library {wanted} on this machine",
            kind="preload-not-found",
            hint="install it (Debian: libtcmalloc-minimal4, libjemalloc2), or give the path of a library",
        )
    return found


def _libraries_of_this_machine() -> dict[str, Path]:
    done = run(["/sbin/ldconfig", "-p"], env=bare_environment())
    matches = (_CACHE_LINE.match(line) for line in done.stdout.splitlines())
    return {match["name"]: Path(match["path"]) for match in reversed(list(matches)) if match}
