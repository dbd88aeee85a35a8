"""The models and the store that a command line names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.repository.folders import looks_like_model
from envpack.repository.model import open_model
from envpack.repository.selection import chosen_folders as _chosen, model_name
from envpack.settings.project import Project
from envpack.support.errors import EnvpackError, UsageError, storage_errors
from envpack.support.progress import Progress

if TYPE_CHECKING:
    from envpack.store.maintenance import PrunedStore, StoreCheck, StoreContent
    from envpack.store.shared import SharedStore


def model_names(project: Project, names: Sequence[str]) -> tuple[str, ...]:
    """The folder names of models that are named by them or by a path, each once; none stands for all."""
    return tuple(dict.fromkeys(model_name(project.repository, name) for name in names))


def chosen_folders(project: Project, names: Sequence[str]) -> list[str]:
    """The folder names of the models to work on, by default all; the content of their folders may be wrong."""
    return list(_chosen(project.repository, model_names(project, names)))


def repository_digest(project: Project, names: Sequence[str]) -> str:
    """The digest of what a server reads of models, by default all, as it is now; a model that is not here has none.

    These are the files of the models and of those that they need, wherever links lead, and their environments.
    """
    from envpack.deployment.objects.content import content_digest
    from envpack.support.bounded_reading import sha256_of
    from envpack.verification.run import models_to_load

    repository = project.repository
    places = [folder for name in names if (folder := repository / name).is_dir()]
    if not names and repository.is_dir():
        places = [one for one in repository.iterdir() if one.is_dir() and looks_like_model(one)]
    with storage_errors(repository):  # a file of another user
        with contextlib.suppress(EnvpackError):  # the server reports what is wrong with a model
            for model in models_to_load(repository, [place.name for place in places])[0] if places else ():
                places += [model.folder, *([model.environment] if model.environment else [])]
        files = {os.path.relpath(file, repository): file for place in places for file in _files(place)}
        return content_digest({path: sha256_of(file) for path, file in files.items()})


def _files(place: Path) -> Iterator[Path]:
    """A file, or those of a folder and of the folders that links in it lead to."""
    if place.is_file():
        yield place
    seen: set[str] = set()  # links can lead in circles
    for root, folders, files in os.walk(place, followlinks=True):
        is_new = os.path.realpath(root) not in seen
        seen.add(os.path.realpath(root))
        folders[:] = sorted(folders) if is_new else []
        yield from (file for name in files if is_new and (file := Path(root, name)).is_file())


def check_model(project: Project, name: str) -> None:
    open_model(project.repository / name)


def complete_names(repository: Path, incomplete: str) -> list[str]:
    """Names of models that begin as typed; nothing where the repository cannot be read."""
    try:
        folders = sorted(entry for entry in repository.iterdir() if entry.is_dir())
        return [folder.name for folder in folders if folder.name.startswith(incomplete) and looks_like_model(folder)]
    except OSError:
        return []


NO_STORE = "none"


def project_store(project: Project) -> SharedStore | None:
    """Open the store that the settings of a repository name. Nothing is sent yet.

    Returns:
        The store, ``None`` if neither names one.

    Raises:
        UsageError: the address is wrong (``bad-store-address``), or there is none to push to (``usage``).
        InputError: the folder of a ``file`` address does not exist (``store-folder-missing``).
    """
    said = project.of()
    if said.store in ("", NO_STORE):
        if project.said.push:
            what = "there is no store to push to"
            raise UsageError("usage", what, "add --store URL, or name a store in envpack.toml")
        return None
    from envpack.store.shared import open_store

    return open_store(said.store, push=said.push)


def list_shared(url: str) -> StoreContent:
    from envpack.store.maintenance import list_store
    from envpack.store.shared import open_store

    return list_store(open_store(url))


def prune_shared(url: str, days: float, *, locks: Sequence[Path], dry_run: bool, progress: Progress) -> PrunedStore:
    from envpack.lock.lockfile import named_by_locks
    from envpack.store.maintenance import prune_store
    from envpack.store.shared import open_store

    return prune_store(open_store(url), days, named=named_by_locks(locks), dry_run=dry_run, progress=progress)


def verify_shared(url: str, *, repair: bool, progress: Progress) -> StoreCheck:
    from envpack.store.maintenance import verify_store
    from envpack.store.shared import open_store

    return verify_store(open_store(url), repair=repair, progress=progress)
