"""The store that a repository shares with other machines, by the command line and envpack.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.settings import Project
from envpack.support.errors import UsageError

if TYPE_CHECKING:
    from envpack.store import SharedStore

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
            raise UsageError(
                "there is no store to push to", kind="usage", hint="add --store URL, or name a store in envpack.toml"
            )
        return None
    from envpack.store import open_store

    return open_store(said.store, push=said.push)
