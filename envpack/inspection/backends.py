"""The folder of a backend for one Python: whether everything is in it that a server looks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from envpack.inspection.finding import Finding, fault
from envpack.inspection.stubs import stub_findings
from envpack.releases import Release
from envpack.repository import BRIDGE, PYTHON_BACKEND, STUB_NAME, UTILITIES, library_name, python_of_backend

_REBUILD = "make the folder again: `envpack build --layout backend MODEL`"


def backend_findings(name: str, backends: Path, named_in: Path, release: Release) -> Iterator[Finding]:
    """What is wrong with a backend that a model names.

    Args:
        name: the backend.
        backends: folder of the backends.
        named_in: the config.pbtxt that names it.
        release: the server that it is for.
    """
    folder = backends / name
    if not folder.is_dir():
        yield fault(
            "backend-missing",
            named_in,
            f"it names the backend {name!r}, which is not in {backends}",
            "run `envpack build --layout backend` for it, or say where it is: --backends",
        )
        return
    if not (folder / STUB_NAME).exists():
        yield fault("stub-missing", folder, f"it has no {STUB_NAME}", _REBUILD)
    else:
        yield from stub_findings(folder / STUB_NAME)
    yield from _parts(folder, name, release)


def _parts(folder: Path, name: str, release: Release) -> Iterator[Finding]:
    if not _is_there(folder / UTILITIES):
        yield fault(
            "backend-incomplete",
            folder,
            f"it has no {UTILITIES}, and without that file a server takes its own stub in silence",
            _REBUILD,
        )
    # From 23.10 on a backend without a library may be one written in Python, if it has a model.py.
    needs_library = release.ninth_argument != "runtime-folder" or not (folder / BRIDGE).is_file()
    if needs_library and not _is_there(folder / library_name(name)):
        yield fault("backend-incomplete", folder, f"it has no {library_name(name)}", _REBUILD)
    if python_of_backend(name) and release.ninth_argument == "runtime-folder" and not (folder / BRIDGE).is_file():
        yield fault(
            "backend-incomplete",
            folder,
            f"it has no {BRIDGE}, which stubs other than envpack's import in place of the model's from 23.10 on",
            _REBUILD,
        )


def _is_there(file: Path) -> bool:
    """Whether a file is there, or will be: a link into the server's own backend leads nowhere yet."""
    return file.exists() or (file.is_symlink() and str(file.readlink()).startswith(f"../{PYTHON_BACKEND}/"))
