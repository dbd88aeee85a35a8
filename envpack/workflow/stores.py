"""The store that a repository shares with other machines, by the command line and envpack.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.project import Project
from envpack.support.errors import UsageError

if TYPE_CHECKING:
    from envpack.store import SharedStore

NO_STORE = "none"


def project_store(project: Project, url: str = "", *, push: bool | None = None) -> SharedStore | None:
    """Open the store of a repository. Nothing is sent yet.

    Args:
        project: the repository and its settings.
        url: address of the store; ``""`` for the one that `envpack.toml` names, ``"none"`` for no store.
        push: whether to put there what this machine makes; None for what `envpack.toml` says.

    Returns:
        The store, ``None`` if neither names one.

    Raises:
        UsageError: the address is wrong (``bad-store-address``), or there is none to push to (``usage``).
        InputError: the folder of a ``file`` address does not exist (``store-folder-missing``).
    """
    address = url or project.store
    if address in ("", NO_STORE):
        if push:
            raise UsageError(
                "there is no store to push to", kind="usage", hint="add --store URL, or name a store in envpack.toml"
            )
        return None
    from envpack.store import open_store

    return open_store(address, push=project.push if push is None else push)
