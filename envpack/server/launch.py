"""What a server is started with: its backend directory, the probe in its home folder, its command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envpack.releases import DEFAULT_RELEASE, all_releases
from envpack.server.location import ServerInstallation

_STUB = "triton_python_backend_stub"
_UTILITIES = "triton_python_backend_utils.py"
_LIBRARY = "libtriton_python.so"
_PLACEHOLDER = "#!/bin/sh\nexit 1\n"


def link_backends(installation: ServerInstallation, destination: Path, extra: Path | None = None) -> tuple[str, ...]:
    """Fill ``destination`` with the backend folders that a server needs.

    ``python`` gets the installation's library, utilities and stub; every sub-folder of ``extra`` becomes a backend
    of its own, with links to the installation's library and utilities where it has none.

    Returns:
        The names of the backends, ``python`` first.

    """
    source = installation.backends / "python"
    python = destination / "python"
    python.mkdir(parents=True)
    for name in (_LIBRARY, _UTILITIES):
        (python / name).symlink_to(source / name)
    _link_default_stub(installation, python / _STUB)
    names = ["python"]
    for folder in sorted(extra.iterdir()) if extra is not None and extra.is_dir() else ():
        if folder.name != "python" and (folder / _STUB).is_file():
            _link_extra(folder, destination / folder.name, source)
            names.append(folder.name)
    return tuple(names)


def default_stub(installation: ServerInstallation) -> Path | None:
    """The stub that the installation itself would use: the one for the Python of its release, else any that it has."""
    release = all_releases().get(installation.release or DEFAULT_RELEASE)
    own = installation.stubs.get(release.python if release else "")
    return own or next(iter(installation.stubs.values()), None)


def _link_default_stub(installation: ServerInstallation, link: Path) -> None:
    """The backend refuses every model if its own folder has no stub, even a model that brings one."""
    stub = default_stub(installation)
    if stub is not None:
        link.symlink_to(stub)
        return
    link.write_text(_PLACEHOLDER, encoding="utf-8")
    link.chmod(0o755)


def _link_extra(folder: Path, destination: Path, source: Path) -> None:
    destination.mkdir()
    for entry in folder.iterdir():
        # A link to the Python backend beside it leads to the server's, here as where the folder will be deployed.
        to_neighbour = entry.is_symlink() and str(entry.readlink()).startswith("../python/")
        (destination / entry.name).symlink_to(entry.readlink() if to_neighbour else entry.absolute())
    for name, origin in ((f"libtriton_{folder.name}.so", _LIBRARY), (_UTILITIES, _UTILITIES)):
        if not (destination / name).exists():
            (destination / name).symlink_to(source / origin)


_MARKER = "envpack-user-site-was-read"
_MINORS = range(6, 16)


def write_user_site_probe(home: Path) -> None:
    """Put the packages into the home folder ``home``."""
    for minor in _MINORS:
        packages = home / f".local/lib/python3.{minor}/site-packages"
        packages.mkdir(parents=True)
        (packages / "usercustomize.py").write_text(
            f"import sys\nsys.stderr.write('{_MARKER}\\n')\nsys.stderr.flush()\n", encoding="utf-8"
        )


def user_site_was_read(log: str) -> bool:
    """Whether a Python whose output is in ``log`` has read them."""
    return _MARKER in log


STOP_SECONDS = 15


def server_command(
    program: str,
    repositories: Sequence[str],
    backends: str,
    address: str,
    port: int,
    arguments: Sequence[str] = (),
) -> list[str]:
    """Start Triton with no model loaded, HTTP only.

    Explicit model control, so that models can be loaded one by one and each says what is wrong with it. Verbose, since
    only then the log tells which stub a model gets.

    Args:
        program: the ``tritonserver`` program.
        repositories: model repositories, as the server sees them.
        backends: folder of the backends, as the server sees it.
        address: what to listen on.
        port: HTTP port.
        arguments: further arguments. They come last, so they win.

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
    ]
