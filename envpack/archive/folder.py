"""An environment as a plain folder: hard links to the store, next to no time and disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from envpack.archive.manifest import Chosen, choose, holds
from envpack.archive.selection import Selection
from envpack.atomic import replaced_folder
from envpack.environment.inventory import Entry
from envpack.environment.store import Environment

_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}


def place_folder(environment: Environment, destination: Path, selection: Selection | None = None) -> bool:
    """Make ``destination`` a folder that holds the environment, in one step for whoever looks at it.

    Files are hard links to the store where the file system allows it, else copies.

    Args:
        environment: to be placed.
        destination: the folder.
        selection: which files; by default all but those that no model needs when it runs.

    Returns:
        Whether anything was written: ``False`` if ``destination`` held this environment already.

    Raises:
        UsageError: kind ``bad-pattern``.
        EnvironmentBuildError: the disk is full, or the folder cannot be written to; ``destination`` is as before.

    """
    selection = selection or Selection()
    if holds(destination, environment, selection):
        return False

    from envpack.archive.destination import locked_destination

    with locked_destination(destination):
        if holds(destination, environment, selection):
            return False
        chosen = choose(environment, selection)
        with replaced_folder(destination) as partial:
            _fill(environment.prefix, partial, chosen)
    return True


def _fill(source: Path, target: Path, chosen: Chosen) -> None:
    _make_folders(target, chosen.entries)
    transfer: Callable[[str, str], object] = os.link
    for entry in chosen.entries:
        new = f"{target}/{entry.path}"
        if entry.kind == "link":
            Path(new).symlink_to(entry.target)
        elif entry.kind != "folder":
            path = f"{source}/{entry.path}"
            try:
                transfer(path, new)
            except OSError as error:
                if transfer is not os.link or error.errno not in _NO_LINK:
                    raise
                transfer = shutil.copy2
                transfer(path, new)
    for name, content in chosen.described.items():
        (target / name).write_bytes(content)


def _make_folders(target: Path, entries: Iterable[Entry]) -> None:
    made = {""}
    for entry in entries:
        folder = entry.path if entry.kind == "folder" else entry.path.rpartition("/")[0]
        if folder not in made:
            Path(target, folder).mkdir(parents=True, exist_ok=True)
            made.add(folder)
