"""Places execution environments, stubs and backend directories where the server looks for them.

A backend directory for one Python, such as ``backends/python_3_8``, serves all models that use the backend. It contains
envpack's stub, the server's library and utilities under the names that the server looks for, and a ``model.py`` that
re-exports the model's own class. Library and utilities are links into the server's own Python backend, a sibling
directory on the server, so they always belong to the running release.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from envpack.repository.config_choices import python_configs
from envpack.repository.config_editor import set_backend, set_execution_environment, with_start
from envpack.repository.model import MODEL_DIRECTORY, Model, config_text
from envpack.settings.project import Project
from envpack.settings.releases import Release
from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError
from envpack.support.folders import real_path, shell_fault, whole_path
from envpack.support.placed_files import CONFIG_NAME, RELEASE_FILE, STUB_NAME
from envpack.support.replacement import replace_link, replaced_file, replaced_folder, write_text

ONE_AT_A_TIME = "--model-load-thread-count=1"
PYTHON_BACKEND = "python"
LIBRARY = "libtriton_python.so"
UTILITIES = "triton_python_backend_utils.py"
BRIDGE = "model.py"
STUB_MODE = 0o755
_OUR_BRIDGE = Path(__file__).with_name("bridge_model.py")
_NAME = re.compile(r"python_3_(\d+)")


def in_model_folder(name: str) -> str:
    """The path of a file or folder ``name`` in the model's own folder, as written in config.pbtxt."""
    return f"{MODEL_DIRECTORY}/{name}"


def linked_path_fault(folder: Path, real_path: str) -> InputError | None:
    """The error for a folder that becomes an execution environment, or holds one, and whose real path is split.

    A shell splits it, or programs that read ``PATH`` and ``LD_LIBRARY_PATH``. A server resolves all links of that path,
    but none of the paths of models, stubs and archives.
    """
    if unfit := shell_fault(real_path):
        what = f"links lead to {real_path!r}, which {unfit}"
    elif ":" in real_path:
        what = f"the path {real_path!r} contains ':', which separates the folders of PATH and LD_LIBRARY_PATH"
    else:
        return None
    fix = (
        "move the target to a path of letters, digits, '/', '_', '-' and '.', "
        "or build an archive: `envpack build --format tar.gz`"
    )
    return InputError("bad-path", what, fix, str(folder))


def point_to_environment(model: Model, path_value: str, backend: str = "", start: str = "") -> bool:
    """Set the environment in all configurations of a model, config.pbtxt last, or in none; whether a file changed."""
    edited = edited_configs(model, path_value, backend, start)
    for file, new in edited.items():
        write_text(real_path(file), new)
    return bool(edited)


def edited_configs(model: Model, path_value: str, backend: str, start: str) -> dict[Path, str]:
    """The new texts of configurations, custom ones too, that an environment's name changes; config.pbtxt last."""
    after_keyword = path_value.removeprefix(MODEL_DIRECTORY)
    if not after_keyword.startswith("/") or "$" in after_keyword or ".." in after_keyword.split("/"):
        what = f"{path_value!r} is neither absolute nor inside the model's folder"
        fix = f"write {in_model_folder('NAME')} or an absolute path"
        raise InputError("bad-environment-path", what, fix, str(model.folder / CONFIG_NAME))
    main = model.folder / CONFIG_NAME
    texts = {file: config.text for file, config in python_configs(model.folder).items()} | {main: config_text(model)}
    edited = {}
    for file, text in texts.items():
        new = with_start(set_execution_environment(text, path_value, file), start, file)
        new = set_backend(new, backend, file) if backend else new
        if new != text or not real_path(file).is_file():
            edited[file] = new
    for file in edited:
        _require_replaceable(real_path(file))  # a link may lead to a folder of another user
    return edited


def _require_replaceable(file: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file.parent)) from error


def place_stub(binary: Path, model_folder: Path, release: Release | None = None) -> bool:
    """Copy a stub into a model's folder, under the name that the server looks for and with mode 0755."""
    if release is None or names_release(model_folder, release):
        return _place_binary(binary, model_folder)
    # If the process is interrupted, no stub is left beside the release file of another stub.
    forget_release(model_folder)
    _place_binary(binary, model_folder)
    write_text(model_folder / RELEASE_FILE, f"{release.name_for_stub}\n")
    return True


def forget_release(model_folder: Path) -> bool:
    """Remove the release file, so that the stub detects the server's release; returns whether the file existed."""
    return _remove(model_folder / RELEASE_FILE)


def remove_stub(folder: Path) -> bool:
    return _remove(folder / STUB_NAME) | forget_release(folder)


def _remove(file: Path) -> bool:
    was_there = os.path.lexists(file)
    if was_there:  # a file system that is read-only refuses to remove what is not there
        file.unlink(missing_ok=True)
    return was_there


def is_stub_placed(binary: Path, model_folder: Path, release: Release | None = None) -> bool:
    destination = model_folder / STUB_NAME
    return (
        (release is None or names_release(model_folder, release))
        and _holds(destination, binary)
        and has_stub_mode(destination)
    )


def may_run(mode: int) -> bool:
    """Whether everybody may read and run a file of this mode, as a stub needs; a Windows drive has only 0777."""
    return mode & 0o555 == 0o555


def has_stub_mode(stub: Path) -> bool:
    return may_run(stub.stat().st_mode)


def names_release(model_folder: Path, release: Release) -> bool:
    file = model_folder / RELEASE_FILE
    return file.is_file() and read_text(file, errors="replace") == f"{release.name_for_stub}\n"


def _holds(destination: Path, binary: Path) -> bool:
    return destination.is_file() and not destination.is_symlink() and filecmp.cmp(binary, destination, shallow=False)


def _place_binary(binary: Path, model_folder: Path) -> bool:
    destination = model_folder / STUB_NAME
    if _holds(destination, binary):
        if has_stub_mode(destination):
            return False
        destination.chmod(STUB_MODE)
        return has_stub_mode(destination)  # a mount of an object store ignores this
    with replaced_file(destination, mode=STUB_MODE) as temporary:
        shutil.copyfile(binary, temporary)
    return True


def unpacking_backends(models: Iterable[Model]) -> tuple[str, ...]:
    """The backends that unpack archives for these models, sorted; two must not unpack at the same time."""
    return tuple(sorted({model.backend for model in models if model.environment and model.environment.is_file()}))


@dataclass(frozen=True)
class Backend:
    """A backend for one Python."""

    name: str  # its name in config.pbtxt, for example ``"python_3_8"``
    folder: Path  # its folder

    @property
    def stub(self) -> Path:
        return self.folder / STUB_NAME

    @property
    def library(self) -> Path:
        return self.folder / library_name(self.name)

    @property
    def has_bridge(self) -> bool:
        """Whether its ``model.py`` is the one of our backends, which loads the model's own."""
        return _holds(self.folder / BRIDGE, _OUR_BRIDGE)

    def place(self, stub: Path, release: Release | None = None, server: Path | None = None) -> bool:
        """Create or complete the directory, and return whether anything changed; correct files stay unchanged."""
        check_server_backend(server)
        if self.folder.is_dir():
            return _fill(stub, self, self.folder, release, server)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with replaced_folder(self.folder) as partial:
            return _fill(stub, self, partial, release, server)

    def outdated_parts(self, server: Path | None) -> tuple[str, ...]:
        """The files that `place` would create or replace, without the stub."""
        found = [] if self.has_bridge else [BRIDGE]
        for name, origin in ((self.library.name, LIBRARY), (UTILITIES, UTILITIES)):
            file = self.folder / name
            is_right = _holds(file, server / origin) if server else _leads_to(file, f"../{PYTHON_BACKEND}/{origin}")
            found += [] if is_right else [name]
        return tuple(found)


def backend_for(minor: str, backends: Path) -> Backend:
    """The backend for a Python, for example ``"3.8"``, whether it exists or not."""
    name = f"{PYTHON_BACKEND}_{minor.replace('.', '_')}"
    return Backend(name, backends / name)


def python_of_backend(name: str) -> str:
    """The Python version in the name of a backend, ``""`` if envpack does not use such a name."""
    match = _NAME.fullmatch(name)
    return f"3.{match[1]}" if match else ""


def library_name(backend: str) -> str:
    return f"libtriton_{backend}.so"


def backends_folder(project: Project) -> Path:
    """The folder of the backends of a repository: beside it, unless a setting names another."""
    return whole_path(project.of().backends or project.repository.parent / "backends")


def find_backends(folder: Path) -> tuple[Backend, ...]:
    """The backends in a folder whose names contain a Python version; none if the folder does not exist."""
    if not folder.is_dir():
        return ()
    return tuple(Backend(f.name, f) for f in sorted(folder.iterdir()) if f.is_dir() and python_of_backend(f.name))


def check_server_backend(server: Path | None) -> None:
    """Refuse a directory of a server's Python backend that lacks what a backend takes from there."""
    if server is not None and not ((server / LIBRARY).is_file() and (server / UTILITIES).is_file()):
        what = f"this is not the directory of a server's Python backend, which contains {LIBRARY} and {UTILITIES}"
        fix = "give the target server's directory; in an image it is /opt/tritonserver/backends/python"
        raise InputError("no-python-backend", what, fix, str(server))


def _fill(stub: Path, backend: Backend, folder: Path, release: Release | None, server: Path | None) -> bool:
    changed = False
    for name, origin in ((library_name(backend.name), LIBRARY), (UTILITIES, UTILITIES)):
        if server is None:
            changed |= _link(folder / name, f"../{PYTHON_BACKEND}/{origin}")
        else:
            changed |= _copy(server / origin, folder / name)
    changed |= _copy(_OUR_BRIDGE, folder / BRIDGE)
    return changed | place_stub(stub, folder, release)


def _leads_to(link: Path, target: str) -> bool:
    return link.is_symlink() and str(link.readlink()) == target


def _link(link: Path, target: str) -> bool:
    if _leads_to(link, target):
        return False
    replace_link(link, target)
    return True


def _copy(source: Path, destination: Path) -> bool:
    if _holds(destination, source):
        return False
    with replaced_file(destination) as temporary:
        shutil.copyfile(source, temporary)
    return True
