"""One writer at a time for each destination, and nothing left behind by writers that were killed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from envpack.support.cache_locations import cache_root
from envpack.support.storage_errors import storage_errors


@contextlib.contextmanager
def locked_destination(destination: Path) -> Iterator[None]:
    """Hold the only right to write ``destination`` (a file or folder); its parent exists within the block.

    The lock lies in the cache folder, so that no lock file gets into a model repository.

    Raises:
        EnvironmentBuildError: the disk is full, or the folder cannot be written to.

    """
    from filelock import FileLock

    with storage_errors(destination):
        locks = cache_root() / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(os.fsencode(os.path.realpath(destination))).hexdigest()[:32]
        with FileLock(locks / f"{name}.lock"):
            destination.parent.mkdir(parents=True, exist_ok=True)
            try:
                _remove_stale(destination)
                yield
            finally:
                _remove_stale(destination)


def _remove_stale(destination: Path) -> None:
    for stale in destination.parent.glob(f".{_escaped(destination.name)}.*.partial"):
        if stale.is_dir() and not stale.is_symlink():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
