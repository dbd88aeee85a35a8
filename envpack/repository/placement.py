"""Puts what was built where the server looks for it."""

from __future__ import annotations

import filecmp
import shutil
import stat
from pathlib import Path

from envpack.releases import Release
from envpack.repository.config_editor import get_string_parameter, set_backend, set_execution_environment
from envpack.repository.model import CONFIG_NAME, Model, config_text
from envpack.support.errors import InputError
from envpack.support.replacement import replaced_file, write_text

STUB_NAME = "triton_python_backend_stub"
RELEASE_FILE = f"{STUB_NAME}.release"
_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"


def in_model_folder(name: str) -> str:
    """The way to write, in config.pbtxt, a file or folder called ``name`` in the model's own folder."""
    return f"{_MODEL_DIRECTORY}/{name}"


def environment_of(model: Model) -> Path | None:
    """The execution environment that the model's config.pbtxt names: folder or archive, whether it exists or not."""
    value = get_string_parameter(model.config, "EXECUTION_ENV_PATH")
    return Path(value.replace(_MODEL_DIRECTORY, str(model.folder))) if value else None


def point_to_environment(model: Model, path_value: str, backend: str = "") -> bool:
    """Let the model's config.pbtxt name its execution environment; create the file if there is none.

    Args:
        model: the model.
        path_value: an absolute path, or what `in_model_folder` gives.
        backend: the backend that it shall name too, in the same step; ``""`` leaves that as it is.

    Returns:
        Whether the file was changed; False if it already said so.

    Raises:
        InputError: the path is neither (kind ``bad-environment-path``): the server would take it from its own
            working directory, or garble it.

    """
    after_keyword = path_value.removeprefix(_MODEL_DIRECTORY)
    if not after_keyword.startswith("/") or "$" in after_keyword or ".." in after_keyword.split("/"):
        raise InputError(
            f"{path_value!r} is neither absolute nor inside the model's folder",
            kind="bad-environment-path",
            where=str(model.folder / CONFIG_NAME),
            hint=f"write {in_model_folder('NAME')} or an absolute path",
        )
    file = (model.folder / CONFIG_NAME).resolve()
    text = config_text(model)
    edited = set_execution_environment(text, path_value, model.folder / CONFIG_NAME)
    if backend:
        edited = set_backend(edited, backend, model.folder / CONFIG_NAME)
    if file.is_file() and edited == text:
        return False
    write_text(file, edited, mode=stat.S_IMODE(file.stat().st_mode) if file.is_file() else 0o644)
    return True


def place_stub(binary: Path, model_folder: Path, release: Release | None = None) -> bool:
    """Copy a stub into a model's folder, under the name that the server looks for and with mode 0755.

    Args:
        binary: the stub.
        model_folder: where to put it.
        release: the server that it is meant for. A release file beside the stub names it, and the stub refuses servers
            that speak otherwise. None leaves that file as it is.

    Returns:
        Whether anything was changed; False if the same stub is there with the right mode and release file.

    """
    if release is None or _names(model_folder, release):
        return _place_binary(binary, model_folder)
    # Whenever this ends, a stub never stands beside a file that was written for another one.
    forget_release(model_folder)
    _place_binary(binary, model_folder)
    write_text(model_folder / RELEASE_FILE, f"{release.said_to_stub}\n")
    return True


def forget_release(model_folder: Path) -> bool:
    """Remove the release file, so that the stub goes by what it finds out of the server; whether there was one."""
    file = model_folder / RELEASE_FILE
    was_there = file.is_file()
    file.unlink(missing_ok=True)
    return was_there


def remove_stub(folder: Path) -> bool:
    """Remove a stub, and its release file; whether there was one."""
    stub = folder / STUB_NAME
    was_there = stub.is_file()
    stub.unlink(missing_ok=True)
    return forget_release(folder) | was_there


def is_stub_placed(binary: Path, model_folder: Path, release: Release | None = None) -> bool:
    """Whether `place_stub` would change nothing."""
    destination = model_folder / STUB_NAME
    return (
        (release is None or _names(model_folder, release))
        and _holds(destination, binary)
        and stat.S_IMODE(destination.stat().st_mode) == 0o755
    )


def _names(model_folder: Path, release: Release) -> bool:
    file = model_folder / RELEASE_FILE
    return file.is_file() and file.read_text(encoding="utf-8", errors="replace") == f"{release.said_to_stub}\n"


def _holds(destination: Path, binary: Path) -> bool:
    return destination.is_file() and not destination.is_symlink() and filecmp.cmp(binary, destination, shallow=False)


def _place_binary(binary: Path, model_folder: Path) -> bool:
    destination = model_folder / STUB_NAME
    if _holds(destination, binary):
        if stat.S_IMODE(destination.stat().st_mode) == 0o755:
            return False
        destination.chmod(0o755)
        return True
    with replaced_file(destination, mode=0o755) as temporary:
        shutil.copyfile(binary, temporary)
    return True
