"""The last arrow of a build: environment and stub into the model repository, config.pbtxt last.

What envpack did not make and is in the way is refused, or moved aside; it is never deleted.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from envpack.archive.folder import place_folder
from envpack.archive.manifest import archive_metadata_file, is_made_by_envpack, read_metadata
from envpack.archive.tarball import pack_archive
from envpack.environment.store import Environment
from envpack.inspection.stubs import mode_fix
from envpack.repository.config_choices import custom_configs, python_configs
from envpack.repository.model import Model, examine_model
from envpack.repository.placement import (
    ONE_AT_A_TIME,
    PYTHON_BACKEND,
    Backend,
    check_server_backend,
    edited_configs,
    forget_release,
    has_stub_mode,
    in_model_folder,
    place_stub,
    point_to_environment,
    python_of_backend,
    remove_stub,
    unpacking_backends,
)
from envpack.repository.selection import examine_readable, model_folders
from envpack.settings.project import Project
from envpack.settings.releases import Release
from envpack.stub.build import check_compiling
from envpack.stub.inspection import inspect_stub
from envpack.support.errors import InputError, StubError, UsageError
from envpack.support.folders import real_path
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import Progress
from envpack.support.replacement import remove_folder, remove_stale_files
from envpack.support.text import major_number
from envpack.workflow.recipe import Recipe, TakenOver
from envpack.workflow.requests import Placement

# The names of `Placement.environment_for`, also with other Pythons and forms than now.
_ENVIRONMENT = re.compile(r"python3\.\d+(?:\.tar(?:\.gz)?)?")


@dataclass(frozen=True)
class PlacedModel:
    """What lies beside a model after a build."""

    environment: Path
    stub: Path  # where it is, if the model has one
    backend: str  # for one Python, if it has one
    changed: bool
    warnings: tuple[str, ...] = ()  # what was removed or stays, and why


def place(request: Placement, environment: Environment, binary: Path | None, progress: Progress) -> PlacedModel:
    model = request.model
    check_placement(request, environment.minor)
    refuse_foreign(foreign_paths(request, environment.minor), force=request.said.force)
    _remove_stale(model.folder)
    path, changed = _place_environment(request, environment, progress)
    backend = request.backend(environment.minor)
    unfit = unfit_stub(request, environment.minor) if binary is None else ""
    changed |= remove_stub(model.folder) if unfit else _place_stub(request, binary, backend)
    # As they are now: another build may have finished since this one read the model.
    models = [examine_model(model.folder)[0], *(config.model for config in python_configs(model.folder).values())]
    previous = {one.written_environment for one in models if one}
    changed |= point_to_environment(*_pointing(request, environment.minor))
    if backend:
        changed |= remove_stub(model.folder)  # the server would prefer it to the backend's
    stub = backend.stub if backend else model.folder / STUB_NAME
    warnings = [_remove_previous(request, value, path) for value in sorted(previous)]
    stays = "stays: this user may not remove all of an old environment; remove it as its owner"
    warnings += [f"{left} {stays}" for left in _remove_stale(model.folder)]
    if unfit:
        warnings.append(f"{stub} was removed: {unfit}")
    if binary is not None and not has_stub_mode(stub):
        warnings.append(f"{stub} is not executable, and its file system keeps no other mode: {mode_fix(stub)}")
    return PlacedModel(path, stub, backend.name if backend else "", changed, tuple(filter(None, warnings)))


def _remove_stale(folder: Path) -> list[Path]:
    return remove_stale_files(folder, lambda place: bool(_ENVIRONMENT.fullmatch(place.name)))


def check_placement(request: Placement, minor: str) -> None:
    """Raise what would end a placement when a part of it is done; the configurations come last."""
    edited_configs(*_pointing(request, minor))
    if request.backends:
        check_server_backend(request.said.copy_library)
    if request.starts_warm and unfit_stub(request, minor):
        what = f"only envpack's stub starts models warm, and --stub never excludes one for Python {minor}"
        raise UsageError("start-limits", what, "remove --stub never, or use --start cold")


def check_compiling_first(request: Placement, source: Recipe, *, shared: bool) -> None:
    """Raise what a first build lacks to compile its stub, unless other machines can; making an environment is long."""
    minor = source.target.python
    needed = source.stub == "always" or (source.stub == "auto" and release_cannot_serve(minor, "", source.release))
    if needed and not shared and not request.environment_for(minor).exists():
        check_compiling(minor, source.target.machine, source.toolchain)


def unfit_stub(request: Placement, minor: str) -> str:
    """Why a build with ``--stub never`` removes the stub of ours beside a model, ``""`` if it does not."""
    stub = request.model.folder / STUB_NAME
    if request.said.stub != "never" or stub.is_symlink():
        return ""
    with contextlib.suppress(StubError):  # it is missing, or not ours
        has = inspect_stub(stub).python
        if has != minor:
            return f"it is for Python {has}, and the environment has Python {minor}"
    return ""


def _pointing(request: Placement, minor: str) -> tuple[Model, str, str, str]:
    model, value = request.model, in_model_folder(request.environment_for(minor).name)
    return model, value, backend_name(model, request.backend(minor)), request.said.start


def wants_stub(source: Recipe | TakenOver, environment: Environment) -> bool:
    needed = release_cannot_serve(environment.minor, numpy_version(environment), source.release)
    return source.stub == "always" or (source.stub == "auto" and needed)


def numpy_version(environment: Environment) -> str:
    return next((package.version for package in environment.packages if package.name == "numpy"), "")


def release_cannot_serve(python: str, numpy: str, release: Release) -> bool:
    """Whether the release's own stub embeds another Python, or cannot serve this NumPy (``""`` if unknown)."""
    return python != release.python or (major_number(numpy) >= 2 and not release.numpy2)


def _place_environment(request: Placement, environment: Environment, progress: Progress) -> tuple[Path, bool]:
    path = request.environment_for(environment.minor)
    if request.archive_format == "dir":
        return path, place_folder(
            environment,
            path,
            request.selection,
            served_as=request.served_as(environment.minor),
            link_mode=request.said.link_mode,
            progress=progress,
        )
    if environment.placeholders:
        progress.detail(
            f"{environment.placeholders} files keep a placeholder for their prefix: an archive has no folder yet"
        )
    return path, pack_archive(
        environment,
        path,
        form=request.archive_format,
        selection=request.selection,
        packer=request.said.packer,
        link_mode=request.said.link_mode,
        progress=progress,
    )


def _place_stub(request: Placement, binary: Path | None, backend: Backend | None) -> bool:
    """Put the stub, if there is one, where it belongs; whether that changed anything."""
    release = request.release if request.release_named else None
    changed = False
    if binary is not None and backend is not None:
        changed = backend.place(binary, release, request.said.copy_library)
    elif binary is not None:
        changed = place_stub(binary, request.model.folder, release)
    if not request.release_named:
        changed |= forget_release(backend.folder if backend else request.model.folder)
    return changed


def backend_name(model: Model, backend: Backend | None) -> str:
    """What config.pbtxt is to name as backend, ``""`` to leave it as it is."""
    if backend:
        return backend.name
    return PYTHON_BACKEND if python_of_backend(model.backend) else ""


def _remove_previous(request: Placement, value: str, current: Path) -> str:
    """Remove the environment that a configuration named before, if it is ours and in its folder; or say why not."""
    model, name = request.model, value.removeprefix(in_model_folder(""))
    if not value or name == value or "/" in name or name in ("", ".", "..", current.name):
        return ""
    previous = model.folder / name
    if previous.is_symlink() or not is_made_by_envpack(previous):
        return ""
    if users := _models_that_name(previous, request):
        others = f"EXECUTION_ENV_PATH of {', '.join(users[:_MOST_NAMED])}"
        others += f" and {len(users) - _MOST_NAMED} more" if len(users) > _MOST_NAMED else ""
        return f"{previous} stays, because {others} names it: remove it when no model names it any more"
    if previous.is_dir():
        with contextlib.suppress(OSError):  # what stays blocks no build
            remove_folder(previous)
    else:
        previous.unlink(missing_ok=True)
        archive_metadata_file(previous).unlink(missing_ok=True)
    return ""


def _models_that_name(environment: Path, request: Placement) -> list[str]:
    """The other models of the repository whose configurations name an environment, here or by its server's path."""
    folder = request.model.folder
    places = {os.path.realpath(environment), str(Path(request.served_from, folder.name, environment.name))}
    users = []
    for other in sorted(folder.parent.iterdir()):
        with contextlib.suppress(OSError, ValueError):  # a model that this user may not read, a text that is no path
            if other != folder and other.is_dir() and places & set(_named_environments(other)):
                users.append(other.name)
    return users


def _named_environments(folder: Path) -> Iterator[str]:
    """What the configurations of a model, which may be broken, name as execution environments."""
    for model in (examine_model(folder)[0], *(custom.model for custom in custom_configs(folder))):
        if named := model.environment if model else None:
            yield os.path.realpath(named)


def unpacked_at_once(project: Project, placed: Collection[str]) -> str:
    """A warning after a build for some backends if servers unpack archives at once, and mix their files."""
    if set(placed) <= {"", PYTHON_BACKEND}:
        return ""  # a folder of models without backends of their own may hold anything
    # Other models of the repository may be broken.
    examined = (examine_readable(folder)[0] for folder in model_folders(project.repository))
    unpacking = unpacking_backends(model for model in examined if model)
    if len(unpacking) < 2:
        return ""
    return (
        f"the backends {' and '.join(unpacking)} unpack archives at the same time, and their files get mixed:"
        f" start the server with {ONE_AT_A_TIME}, or build with --format dir"
    )


_MOST_NAMED = 3  # models in one warning
_ENTRY = b"envpack_stub_run"  # a name that each stub of ours contains, even a damaged one
_MOST_READ = 64 << 20  # bytes; a stub has 4 MB


def refuse_foreign(paths: Iterable[Path], *, force: bool) -> None:
    for path in paths:
        if not force:
            what = f"{_what(path)}, and envpack did not make it"
            raise InputError("not-ours", what, "move it away, or add --force, which renames it", str(path))
        path.rename(_free_name(path))


def foreign_paths(request: Placement, minor: str) -> Iterator[Path]:
    """What a build would replace and envpack did not make."""
    path = request.environment_for(minor)
    yield from _foreign(path, is_ours=is_made_by_envpack(path), is_folder=request.archive_format == "dir")
    if request.archive_format != "dir":
        yield from _foreign(archive_metadata_file(path), is_ours="key" in read_metadata(path))
    if request.said.stub != "never":
        yield from foreign_stub(request.model.folder)
    if backend := request.backend(minor):
        is_ours = _is_our_stub(backend.stub) or backend.has_bridge
        yield from _foreign(backend.folder, is_ours=is_ours, is_folder=True)


def foreign_stub(folder: Path) -> Iterator[Path]:
    stub = folder / STUB_NAME
    yield from _foreign(stub, is_ours=_is_our_stub(stub))


def refuse_own_source(taken: TakenOver, request: Placement, minor: str) -> None:
    """Refuse to take over an environment from the folder that the build replaces, or from inside of it."""
    source, folder = real_path(taken.prefix), request.environment_for(minor)
    if request.archive_format == "dir" and (source.is_relative_to(real_path(folder))):
        what = "the build would replace the environment that it takes over"
        fix = "move it out of the model's folder first, and name its new place with --from-prefix"
        raise InputError("source-replaced", what, fix, str(taken.prefix))


def _foreign(path: Path, *, is_ours: bool, is_folder: bool = False) -> Iterator[Path]:
    if os.path.lexists(path) and (path.is_symlink() or not (is_ours or _is_empty(path, is_folder=is_folder))):
        yield path


def _is_empty(path: Path, *, is_folder: bool) -> bool:
    """Whether there is nothing that could be lost, and a folder is not in the place of a file."""
    if path.is_dir():
        return is_folder and not any(path.iterdir())
    return path.is_file() and path.stat().st_size == 0


def _is_our_stub(path: Path) -> bool:
    try:
        return bool(inspect_stub(path))
    except StubError:
        return path.is_file() and path.stat().st_size <= _MOST_READ and _ENTRY in path.read_bytes()


def _what(path: Path) -> str:
    if path.is_symlink():
        return "this is a symbolic link"
    return "this folder exists" if path.is_dir() else "this file exists"


def _free_name(path: Path) -> Path:
    """A name beside a path that nothing has yet, such as ``python3.10.saved-1``."""
    number = 1
    while os.path.lexists(free := path.with_name(f"{path.name}.saved-{number}")):
        number += 1
    return free
