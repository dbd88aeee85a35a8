"""Places a checked copy of a published repository in a folder, for a server or for a container that starts one."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from envpack.archive import locked_destination
from envpack.deployment.objects.fetch import CopiedPublication, copy_publication, no_published_models
from envpack.deployment.statements import Trust
from envpack.store import Objects
from envpack.support.bounded_reading import read_json
from envpack.support.errors import InputError
from envpack.support.failures import storage_errors
from envpack.support.links_and_modes import FOLDER
from envpack.support.progress import Progress
from envpack.support.replacement import replaced_folder, write_text

FETCHED = ".envpack-fetched.json"  # in a folder that envpack fetched
_SCHEMA = 1
_OF_FILE_SYSTEM = "lost+found"


def place_publication(
    objects: Objects, directory: Path, progress: Progress, *, trust: Trust | None = None
) -> CopiedPublication:
    """Copy a published repository to a folder, which changes only once everything is compared.

    A new folder appears in one step. One that exists stays, because it may be a mount point; each model in it is
    replaced in one step.

    Args:
        objects: where it was published.
        directory: the folder; it is created, or replaced if envpack fetched it, or filled if it is empty.
        progress: receives the bytes.
        trust: who must have signed.

    Raises:
        InputError: kind ``repository-empty``: nothing is there; ``published-changed``, also if nothing records what was
            published; ``signature-invalid``; or ``output-not-ours``: something else is in the folder.
        StorageError: the store cannot be used, the disk is full, or the folder is not writable.
    """
    directory = Path(os.path.realpath(directory))
    _check(directory)
    with locked_destination(directory), storage_errors(directory):
        if directory.is_dir():
            with tempfile.TemporaryDirectory(prefix=".envpack-", suffix=".partial", dir=directory) as partial:
                copied = _copy(objects, Path(partial), progress, trust)
                _replace_models(directory, Path(partial))
            return copied
        with replaced_folder(directory) as folder:
            return _copy(objects, folder, progress, trust)


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
    document = {"schema": _SCHEMA, "address": "", "models": sorted({*before, *now})}
    write_text(directory / FETCHED, json.dumps(document, indent=1) + "\n")
    for name in now:
        with replaced_folder(directory / name) as place:
            (partial / name).rename(place)
    for name in before:
        if name not in now:
            shutil.rmtree(directory / name, ignore_errors=True)
    (partial / FETCHED).replace(directory / FETCHED)


def _models(folder: Path) -> list[str]:
    """The models that envpack fetched into a folder."""
    try:
        found = read_json(folder / FETCHED)["models"]
        return [name for name in found if isinstance(name, str) and Path(name).name == name]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _check(directory: Path) -> None:
    if directory.is_dir():
        names = {entry.name for entry in directory.iterdir()} - {_OF_FILE_SYSTEM}
        if FETCHED in names or not names:
            return
    elif not os.path.lexists(directory):
        return
    fix = "give a folder that does not exist or is empty, or remove this one"
    raise InputError("output-not-ours", "this exists, and `envpack fetch` did not create it", fix, str(directory))
