"""An environment as a plain folder: hard links to the store, next to no time and disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from envpack.atomic import replaced_folder
from envpack.environment.store import Environment, read_environment

_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}


def place_folder(environment: Environment, destination: Path) -> bool:
    """Make ``destination`` a folder that holds the environment, in one step for whoever looks at it.

    Files are hard links to the store where the file system allows it, else copies.

    Returns:
        Whether anything was written: ``False`` if ``destination`` held this environment already.

    Raises:
        EnvironmentBuildError: the disk is full, or the folder cannot be written to; ``destination`` is as before.

    """
    if _holds(destination, environment):
        return False

    from envpack.archive.destination import locked_destination

    with locked_destination(destination):
        if _holds(destination, environment):
            return False
        with replaced_folder(destination) as partial:
            _link_tree(environment.prefix, partial)
    return True


def _holds(destination: Path, environment: Environment) -> bool:
    present = read_environment(destination)
    return present is not None and present.key == environment.key


def _link_tree(source: Path, target: Path) -> None:
    transfer: Callable[[str, str], object] = os.link
    for folder, folders, files in os.walk(source):
        here = target / Path(folder).relative_to(source)
        for name in folders:
            path = os.path.join(folder, name)  # noqa: PTH118 - thousands of files: text is faster
            if os.path.islink(path):  # noqa: PTH114
                (here / name).symlink_to(os.readlink(path))  # noqa: PTH115
            else:
                (here / name).mkdir()
        for name in files:
            path, new = os.path.join(folder, name), os.path.join(here, name)  # noqa: PTH118
            if is_left_out(os.path.relpath(path, source)):
                continue
            try:
                transfer(path, new)
            except OSError as error:
                if transfer is not os.link or error.errno not in _NO_LINK:
                    raise
                transfer = _copy
                transfer(path, new)


def _copy(source: str, target: str) -> None:
    shutil.copy2(source, target, follow_symlinks=False)


def is_left_out(name: str) -> bool:
    """Whether a file of an environment, by its name relative to the root, is of no use outside the store."""
    return name == "CACHEDIR.TAG" or (name.startswith("conda-meta/") and name.endswith(".lock"))
