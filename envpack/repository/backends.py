"""Backend folders for one Python each, such as ``backends/python_3_8``: one stub for all models that name the backend.

The folder holds envpack's stub, the server's library and utilities under the names that the server looks for, and a
``model.py`` that hands on the model's own class. Library and utilities are links into the folder of the server's own
Python backend, which is beside this one where it is deployed: so they are always those of the release that runs.
"""

from __future__ import annotations

import filecmp
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from envpack.project import Project
from envpack.releases import Release
from envpack.repository.placement import STUB_NAME, place_stub
from envpack.support.errors import InputError
from envpack.support.replacement import replace_link, replaced_file, replaced_folder

PYTHON_BACKEND = "python"
LIBRARY = "libtriton_python.so"
UTILITIES = "triton_python_backend_utils.py"
BRIDGE = "model.py"
_NAME = re.compile(r"python_3_(\d+)")


@dataclass(frozen=True)
class Backend:
    """A backend for one Python.

    Attributes:
        name: what config.pbtxt calls it, for example ``"python_3_8"``.
        folder: its folder.
    """

    name: str
    folder: Path

    @property
    def stub(self) -> Path:
        """Where its stub is, or would be."""
        return self.folder / STUB_NAME

    @property
    def library(self) -> Path:
        """Where its library is, or would be."""
        return self.folder / library_name(self.name)


def backend_for(minor: str, backends: Path) -> Backend:
    """The backend for a Python, for example ``"3.8"``, whether it exists or not."""
    name = f"{PYTHON_BACKEND}_{minor.replace('.', '_')}"
    return Backend(name, backends / name)


def python_of_backend(name: str) -> str:
    """The Python that a backend of this name is for, ``""`` if it is not one of envpack's names."""
    match = _NAME.fullmatch(name)
    return f"3.{match[1]}" if match else ""


def library_name(backend: str) -> str:
    """The name under which a server looks for a backend's library."""
    return f"libtriton_{backend}.so"


def backends_of(project: Project, explicit: Path | None = None) -> Path:
    """The folder of the backends of a repository: beside it, unless the project or the caller says where."""
    return (explicit or project.backends or project.repository.parent / "backends").absolute()


def find_backends(folder: Path) -> tuple[Backend, ...]:
    """The backends in a folder whose names say that they are for one Python; none if there is no such folder."""
    if not folder.is_dir():
        return ()
    return tuple(Backend(f.name, f) for f in sorted(folder.iterdir()) if f.is_dir() and python_of_backend(f.name))


def place_backend(stub: Path, backend: Backend, release: Release | None = None, server: Path | None = None) -> bool:
    """Make a backend's folder complete; what is as it should be is left alone.

    Args:
        stub: the stub's executable.
        backend: whose folder; made, with its parents, if it is not there.
        release: the server that it is meant for, as in `place_stub`.
        server: folder of a server's own Python backend, whose library and utilities are copied. None links to where
            they will be: in ``../python``.

    Returns:
        Whether anything was changed.

    Raises:
        InputError: ``server`` does not hold a server's Python backend (kind ``no-python-backend``).
    """
    if server is not None and not ((server / LIBRARY).is_file() and (server / UTILITIES).is_file()):
        raise InputError(
            f"this is not the folder of a server's Python backend: it must hold {LIBRARY} and {UTILITIES}",
            kind="no-python-backend",
            where=str(server),
            hint="give that folder of the target server, in its image /opt/tritonserver/backends/python",
        )
    if backend.folder.is_dir():
        return _fill(stub, backend, backend.folder, release, server)
    backend.folder.parent.mkdir(parents=True, exist_ok=True)
    with replaced_folder(backend.folder) as partial:
        return _fill(stub, backend, partial, release, server)


def _fill(stub: Path, backend: Backend, folder: Path, release: Release | None, server: Path | None) -> bool:
    changed = False
    for name, origin in ((library_name(backend.name), LIBRARY), (UTILITIES, UTILITIES)):
        if server is None:
            changed |= _link(folder / name, f"../{PYTHON_BACKEND}/{origin}")
        else:
            changed |= _copy(server / origin, folder / name)
    changed |= _copy(Path(__file__).with_name("bridge_model.py"), folder / BRIDGE)
    return changed | place_stub(stub, folder, release)


def _link(place: Path, target: str) -> bool:
    if place.is_symlink() and str(place.readlink()) == target:
        return False
    replace_link(place, target)
    return True


def _copy(source: Path, place: Path) -> bool:
    if place.is_file() and not place.is_symlink() and filecmp.cmp(source, place, shallow=False):
        return False
    with replaced_file(place) as temporary:
        shutil.copyfile(source, temporary)
    return True
