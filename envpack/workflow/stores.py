"""The store that a repository shares with other machines, and what `envpack cache --store` does with one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.settings import Project
from envpack.support.errors import UsageError
from envpack.support.progress import Progress

if TYPE_CHECKING:
    from envpack.store import PrunedStore, SharedStore, StoreContent

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
    from envpack.store import open_store

    return open_store(said.store, push=said.push)


def list_shared(url: str) -> StoreContent:
    """What a store holds."""
    from envpack.store import list_store, open_store

    return list_store(open_store(url))


def prune_shared(url: str, days: float, *, locks: Sequence[Path], dry_run: bool, progress: Progress) -> PrunedStore:
    """Remove what was not used for some days; see `envpack.store.prune_store`."""
    from envpack.store import open_store, prune_store

    return prune_store(open_store(url), days, locks=locks, dry_run=dry_run, progress=progress)


def verify_shared(url: str, progress: Progress) -> tuple[int, tuple[str, ...]]:
    """How many blobs were compared with their digests, and the names of those that differ."""
    from envpack.store import open_store, verify_store

    return verify_store(open_store(url), progress=progress)
