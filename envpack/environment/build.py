"""Builds execution environments from requirements or a lock; the store keeps each one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from envpack.environment.store import Environment, disappeared, read_environment
from envpack.lock.lockfile import Lock
from envpack.lock.resolve import LockOptions
from envpack.support.entry_locks import being_made, ingredients_in_use, mark_used
from envpack.support.errors import EnvironmentBuildError
from envpack.support.failures import require_programs, storage_errors
from envpack.support.folders import cache_folder
from envpack.support.progress import Progress
from envpack.support.replacement import new_folder


def find_environment(lock: Lock, cache: Path, *, strip: bool = False) -> Environment | None:
    """The environment of a lock if the store has it; see `environment_of`."""
    return read_environment(_entry(lock, cache, strip=strip))


def environment_of(
    lock: Lock,
    options: LockOptions,
    progress: Progress,
    *,
    indexes: Sequence[str] = (),
    strip: bool = False,
    fill: Callable[[Path], None] | None = None,
) -> Environment:
    """Return the environment of a lock from the store; build it there, or fill it, if it is missing."""
    folder = _entry(lock, options.cache, strip=strip)
    found = find_intact(folder, options.cache, progress)
    if found:
        return found
    if fill is not None:
        return build_once(folder, fill, progress)

    require_programs(folder.parent)
    from envpack.environment.assemble import Assembly, assemble

    assembly = Assembly(lock=lock, options=options, indexes=tuple(indexes), strip=strip, progress=progress)
    with ingredients_in_use(options.cache):
        return build_once(folder, lambda partial: assemble(assembly, partial), progress)


def _entry(lock: Lock, cache: Path, *, strip: bool) -> Path:
    return cache_folder("environments", cache) / lock.environment_key(strip=strip)


def find_intact(folder: Path, cache: Path, progress: Progress) -> Environment | None:
    """The environment in a folder of the store, if it is there and none of its files was changed.

    A damaged one is removed, with what it shares files with, so that the caller builds it again.
    """
    from envpack.environment.store import damaged_files, discard

    found = read_environment(folder)
    if found is None:
        return None
    if damaged_files(folder):
        with storage_errors(folder), being_made(folder):
            damaged = damaged_files(folder)  # another process may have mended it
            if damaged:
                more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
                progress.detail(f"{folder / damaged[0]} was changed{more}; the environment is made again")
                discard(folder, damaged, cache)
        return read_environment(folder)
    mark_used(folder)
    return found


def build_once(folder: Path, fill: Callable[[Path], None], progress: Progress) -> Environment:
    """Build an environment in the store; other processes that need it wait until it is complete."""
    from envpack.environment.store import write_index

    def waiting() -> None:
        progress.detail("wait for another process that makes the same environment")

    with storage_errors(folder.parent), being_made(folder, waiting):
        found = read_environment(folder)
        if found:
            return found
        with new_folder(folder) as partial, _places_in(partial):
            fill(partial)
        write_index(folder)
        finished = read_environment(folder)
    if finished is None:
        raise disappeared(folder)
    return dataclasses.replace(finished, fresh=True)


@contextlib.contextmanager
def _places_in(prefix: Path) -> Iterator[None]:
    """Name files of an environment in errors by their path in it: a build that fails removes the folder."""
    try:
        yield
    except EnvironmentBuildError as error:
        if not Path(error.where).is_relative_to(prefix):
            raise
        place = error.where.removeprefix(str(prefix)).removeprefix("/")
        raise EnvironmentBuildError(error.kind, error.message, error.hint, place, details=error.details) from error
