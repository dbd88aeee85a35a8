"""Places a checked copy of a published repository in a folder, for a server or for a container that starts one."""

from __future__ import annotations

import json
import os
from pathlib import Path

from envpack.archive.folder import locked_destination
from envpack.deployment.objects.fetch import CopiedPublication, copy_publication, no_published_models
from envpack.deployment.signing import Trust
from envpack.store.location import is_object_path
from envpack.store.objects import Objects
from envpack.support.bounded_reading import read_json
from envpack.support.errors import InputError, UsageError, storage_errors
from envpack.support.folders import real_path
from envpack.support.links_and_modes import FOLDER
from envpack.support.progress import Progress
from envpack.support.replacement import (
    remove_folder,
    remove_leftovers,
    replaced_folder,
    temporaries_of,
    write_text,
)
from envpack.support.temp_dirs import partial_folder, partial_folders, remove_partial_folders

FETCHED = ".envpack-fetched.json"  # in a folder that envpack fetched
_SCHEMA = 1
_OF_FILE_SYSTEM = "lost+found"


def place_publication(
    objects: Objects, directory: Path, progress: Progress, *, trust: Trust | None = None
) -> CopiedPublication:
    """Copy a published repository to a folder, which changes only once everything is compared.

    A new folder appears in one step. One that exists stays, because it may be a mount point; each model in it is
    replaced in one step. What a killed process left in it is removed.
    """
    directory = real_path(directory)
    if objects.location.folder is not None and directory.is_relative_to(real_path(objects.location.folder)):
        what = "the folder cannot be inside the publication that it is a copy of"
        raise UsageError("output-inside", what, f"give one outside of {objects.location}", str(directory))
    _check(directory)
    with locked_destination(directory), storage_errors(directory):
        if directory.is_dir():
            _remove_leftovers(directory)
            with partial_folder(directory) as partial:
                copied = _copy(objects, partial, progress, trust)
                _replace_models(directory, partial)
            return copied
        with replaced_folder(directory) as folder:
            return _copy(objects, folder, progress, trust)


def _remove_leftovers(directory: Path) -> None:
    """Remove what killed processes left: a server takes it for a model."""
    remove_partial_folders(directory)
    for name in (FETCHED, *_models(directory)):
        remove_leftovers(directory / name)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _copy(objects: Objects, folder: Path, progress: Progress, trust: Trust | None) -> CopiedPublication:
    folder.chmod(FOLDER)
    copied = copy_publication(objects, folder, progress, trust=trust)
    if not (copied.compared or copied.files):
        raise no_published_models(objects.location)
    if not copied.compared:
        what = "nothing records what was published there, so that a changed file would not be noticed"
        fix = "publish it with `envpack publish`, and leave its record there"
        raise InputError("published-changed", what, fix, str(objects.location))
    models = sorted(entry.name for entry in folder.iterdir())
    document = {"schema": _SCHEMA, "address": objects.location.name, "models": models}
    write_text(folder / FETCHED, json.dumps(document, indent=1) + "\n")
    return copied


def _replace_models(directory: Path, partial: Path) -> None:
    """Exchange the models of a folder, one after the other; what a killed process leaves, the next one replaces."""
    before, now = _models(directory), _models(partial)
    for name in now:
        if os.path.lexists(directory / name) and not (name in before and _is_folder(directory / name)):
            raise _not_ours(directory / name, "move it out of this folder, or fetch into another one")
    document = {"schema": _SCHEMA, "address": "", "models": sorted({*before, *now})}
    write_text(directory / FETCHED, json.dumps(document, indent=1) + "\n")
    for name in now:
        with replaced_folder(directory / name) as place:
            (partial / name).rename(place)
    for name in before:
        if name not in now and _is_folder(directory / name):
            remove_folder(directory / name)
    (partial / FETCHED).replace(directory / FETCHED)


def _models(folder: Path) -> list[str]:
    """The models that envpack fetched into a folder."""
    try:
        found = read_json(folder / FETCHED)["models"]
        return [name for name in found if isinstance(name, str) and _is_model_name(name)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _is_model_name(name: str) -> bool:
    """Whether a name can be that of a published model, so that it leads to no other folder."""
    return is_object_path(name) and "/" not in name and not name.startswith(".")


def _check(directory: Path) -> None:
    if directory.is_dir():
        ours = {*partial_folders(directory), *temporaries_of(directory / FETCHED), directory / _OF_FILE_SYSTEM}
        if (directory / FETCHED).is_file() or not {*directory.iterdir()} - ours:
            return
    elif not os.path.lexists(directory):
        return
    raise _not_ours(directory, "give a folder that does not exist or is empty, or remove this one")


def _not_ours(path: Path, fix: str) -> InputError:
    return InputError("output-not-ours", "this exists, and `envpack fetch` did not create it", fix, str(path))
