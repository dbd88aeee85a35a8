"""A private backend folder made of links, so that an installation is used without being written to."""

from __future__ import annotations

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
