"""An installed Triton server, and what it is started with: backends, probe of user site-packages, the command line."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envpack.repository.placement import library_name
from envpack.settings.releases import all_releases, find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.errors import ServerError
from envpack.support.folders import real_path, shell_fault
from envpack.support.installation import install_beside, install_command
from envpack.support.links_and_modes import protect
from envpack.support.placed_files import STUB_NAME
from envpack.support.processes import bare_environment, run

_CONTAINER_HOME = Path("/opt/tritonserver")
_WHEEL = "nvidia-pytriton"
# The Python packages of the wheel need NumPy 1, which has to be compiled for these Pythons; its server does not.
_WITHOUT_NUMPY_1 = (3, 13)
_WHEEL_SERVER = "pytriton/tritonserver/bin/tritonserver"
_LIBRARY = "libtriton_python.so"
# File names of libraries by their common names, preferred ones first.
_KNOWN = {
    "tcmalloc": ("libtcmalloc.so.4", "libtcmalloc_minimal.so.4"),
    "jemalloc": ("libjemalloc.so.2",),
}
_CACHE_LINE = re.compile(r"^\s*(?P<name>\S+) \(.*\) => (?P<path>/.+)$")


@dataclass(frozen=True)
class ServerInstallation:
    """A Triton server on this machine. Nothing is written to it."""

    executable: Path
    backends: Path
    library_path: str = ""  # for LD_LIBRARY_PATH: a wheel's libraries, or what Triton's image sets, with the driver's
    stubs: dict[str, Path] = field(default_factory=dict)  # by Python minor version
    release: str = ""  # "" if only a running server can tell


def find_server(explicit: Path | None = None) -> ServerInstallation:
    """Find the server to verify with: on PATH, in /opt/tritonserver, or in the nvidia-pytriton wheel."""
    if explicit is not None:
        return _at(explicit)
    on_path = shutil.which("tritonserver")
    for candidate in (Path(on_path) if on_path else None, _CONTAINER_HOME / "bin/tritonserver", _in_wheel()):
        if candidate is not None and candidate.is_file():
            installation = _describe(real_path(candidate))
            if installation is not None:
                return installation
    what = "no Triton server on this machine: not on PATH, not in /opt/tritonserver, no nvidia-pytriton installed"
    raise ServerError("server-missing", what, install_server_command())


def install_server_command() -> str:
    if sys.version_info >= _WITHOUT_NUMPY_1:
        return install_beside("--no-deps", f"{_WHEEL}=={find_release(DEFAULT_RELEASE).wheel}")
    return install_command("server")


def _at(place: Path) -> ServerInstallation:
    program = next((p for p in (place, place / "bin/tritonserver", place / "tritonserver") if p.is_file()), None)
    installation = _describe(real_path(program)) if program else None
    if installation is None:
        what = "this is not a Triton server" if program is None else f"this server has no {_LIBRARY} in backends/python"
        fix = f"name the tritonserver program, or install one: {install_server_command()}"
        raise ServerError("server-missing", what, fix, str(place))
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
    found = {f.parent.name: f for f in sorted((home / "python_backend_stubs").glob(f"*/{STUB_NAME}"))}
    own = home / "backends/python" / STUB_NAME
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
    versions = {found.version for found in importlib.metadata.distributions(name=_WHEEL, path=[str(packages)])}
    return next((release.name for release in all_releases().values() if release.wheel in versions), "")


def find_preload(wanted: str) -> Path:
    if "/" in wanted:
        return Path(wanted)
    here = _libraries_of_this_machine()
    found = next((here[name] for name in _KNOWN.get(wanted, (wanted,)) if name in here), None)
    if found is None:
        fix = "install it (Debian: libtcmalloc-minimal4, libjemalloc2), or give the path of a library"
        raise ServerError("preload-not-found", f"no library {wanted} on this machine", fix)
    return found


def _libraries_of_this_machine() -> dict[str, Path]:
    done = run(["/sbin/ldconfig", "-p"], env=bare_environment())
    matches = (_CACHE_LINE.match(line) for line in done.stdout.splitlines())
    return {match["name"]: Path(match["path"]) for match in reversed(list(matches)) if match}


_UTILITIES = "triton_python_backend_utils.py"
_MARKER = "envpack-user-site-was-read"
_MINORS = range(6, 16)
STOP_SECONDS = 15
# Behind all others, since envpack reads the log: in another form or place, faults in it would not be noticed.
_LOG = ("--log-format=default", "--log-file=", "--log-info=true", "--log-warning=true", "--log-error=true")


def link_backends(
    installation: ServerInstallation, destination: Path, extra: Path | None = None, utilities: Path | None = None
) -> tuple[str, ...]:
    """Create a private backend directory, mostly from links; returns the Python backends, ``python`` first."""
    source = installation.backends / "python"
    python = destination / "python"
    python.mkdir(parents=True)
    _place_library(source, python / _LIBRARY)
    (python / _UTILITIES).symlink_to(utilities or source / _UTILITIES)
    # The backend rejects every model if its directory has no stub. /bin/false ends with status 1, too.
    _place_stub(default_stub(installation) or Path("/bin/false"), python / STUB_NAME)
    names = ["python"]
    for folder in (*_folders_in(extra), *_folders_in(installation.backends)):
        link = destination / folder.name
        if link.exists():
            continue
        if (folder / STUB_NAME).is_file():
            _link_extra(folder, link, source, utilities)
            names.append(folder.name)
        elif is_other_backend(folder):
            link.symlink_to(folder.absolute())
    return tuple(names)


def _place_library(source: Path, destination: Path) -> None:
    """A link only where nothing may be run from the folder for temporary files.

    A server refuses one that leads out of a backend's folder if a model's `runtime`, or a backend in Python, names it.
    """
    (os.symlink if _is_noexec(destination.parent) else shutil.copyfile)(source / _LIBRARY, destination)


def _place_stub(stub: Path, destination: Path) -> None:
    """A program that starts a stub; a link only where nothing may be run from the folder for temporary files.

    A server first runs a stub without arguments, and sets the mode 0100 if it exits with another status than 1, as one
    does whose libpython only an environment has. Through a link, that would be the installed file and its hard links.
    """
    if _is_noexec(destination.parent):
        destination.symlink_to(stub)
        return
    destination.write_text(f'#!/bin/sh\n[ $# = 0 ] && exit 1\nexec {shlex.quote(str(stub))} "$@"\n', encoding="utf-8")
    destination.chmod(0o755)


def _is_noexec(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def is_other_backend(folder: Path) -> bool:
    """Whether a folder is a backend with a library of its own, or with Python code for all of its models (vLLM)."""
    return (folder / library_name(folder.name)).is_file() or _is_in_python(folder)


def _is_in_python(folder: Path) -> bool:
    files = ("model.py", library_name(folder.name), STUB_NAME)
    return [(folder / file).is_file() for file in files] == [True, False, False]


def _folders_in(folder: Path | None) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder and folder.is_dir() else []


def default_stub(installation: ServerInstallation) -> Path | None:
    """The stub that the server itself would run: the one for its release's Python, otherwise any installed stub."""
    release = all_releases().get(installation.release or DEFAULT_RELEASE)
    own = installation.stubs.get(release.python if release else "")
    return own or next(iter(installation.stubs.values()), None)


def _link_extra(folder: Path, destination: Path, source: Path, utilities: Path | None) -> None:
    destination.mkdir()
    if utilities is not None:
        (destination / _UTILITIES).symlink_to(utilities)
    for entry in folder.iterdir():
        if utilities is not None and entry.name == _UTILITIES:
            continue
        # A relative link to the neighbouring Python backend must resolve to this server's, as after deployment.
        to_neighbour = entry.is_symlink() and str(entry.readlink()).startswith("../python/")
        if entry.name == STUB_NAME and not to_neighbour:
            _place_stub(entry.absolute(), destination / entry.name)
            continue
        (destination / entry.name).symlink_to(entry.readlink() if to_neighbour else entry.absolute())
    if not (library := destination / library_name(folder.name)).exists():
        _place_library(source, library)
    if not (destination / _UTILITIES).exists():
        (destination / _UTILITIES).symlink_to(source / _UTILITIES)


def library_path(installation: ServerInstallation, home: Path) -> str:
    """The server's ``LD_LIBRARY_PATH``; a link in ``home`` where a shell, which gets it unquoted, would split it."""
    wanted = installation.library_path
    if not shell_fault(wanted) or not Path(wanted).is_dir():
        return wanted
    link = home / "libraries"
    if not link.is_symlink():
        link.symlink_to(wanted)
    return str(link)


def refuse_unsafe_folder(home: Path) -> None:
    if unfit := shell_fault(str(home)):
        fix = "set TMPDIR to a folder of letters, digits, '/', '_', '-' and '.'"
        raise ServerError("bad-path", f"the path {unfit}", fix, str(home.parent))


def port_taken(port: int) -> ServerError:
    what = f"port {port} is in use"
    return ServerError("port-taken", what, "choose another port, or name none to use a free one", f"127.0.0.1:{port}")


def write_user_site_probe(home: Path) -> None:
    """Write a ``usercustomize`` module for every supported Python below ``home/.local``.

    A model that imports packages from ``~/.local`` of the server's user works on one machine and fails on the next. A
    Python that reads the user's site-packages imports ``usercustomize`` at its start, and the module prints a marker.
    """
    for minor in _MINORS:
        packages = home / f".local/lib/python3.{minor}/site-packages"
        packages.mkdir(parents=True)
        (packages / "usercustomize.py").write_text(
            f"import sys\nsys.stderr.write('{_MARKER}\\n')\nsys.stderr.flush()\n", encoding="utf-8"
        )
    protect(home / ".local")  # the server of a container may be another user


def user_site_was_read(log: str) -> bool:
    return _MARKER in log


def server_command(
    program: str,
    repositories: Sequence[str],
    backends: str,
    address: str,
    port: int,
    arguments: Sequence[str] = (),
) -> list[str]:
    """Command line that starts Triton with no model loaded and HTTP only.

    Model control is explicit, so that each model is loaded by its own request and has its own error message. The log
    is verbose, because only the verbose log names the stub of each model.
    """
    return [
        program,
        *(f"--model-repository={repository}" for repository in repositories),
        f"--backend-directory={backends}",
        "--model-control-mode=explicit",
        f"--http-address={address}",
        f"--http-port={port}",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--log-verbose=1",
        f"--exit-timeout-secs={STOP_SECONDS}",
        *arguments,
        *_LOG,
    ]
