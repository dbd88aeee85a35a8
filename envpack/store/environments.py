"""Environments through a store that machines share: fetched by the key of their lock, or built and put there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from envpack.archive import pack_whole, unpack_whole
from envpack.environment import Environment, find_intact
from envpack.store.records import MOST_BYTES, Record
from envpack.store.shared import SharedStore
from envpack.support.entry_locks import being_made
from envpack.support.errors import EnvironmentBuildError, InputError
from envpack.support.failures import storage_errors
from envpack.support.folders import cache_folder, cache_root
from envpack.support.progress import NoProgress, Progress

_SPARE = 1 << 30  # bytes of an unpacked archive that are not content: headers, and the list of files

# Fills an empty folder with an environment.
Fill = Callable[[Path], None]


def obtain_environment(
    store: SharedStore,
    key: str,
    make: Callable[[Fill | None], Environment],
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Environment:
    """The environment of a key: from the cache, else from the store, else made now.

    With `SharedStore.push` the store has it afterwards. While this machine makes it, others wait for it.
    """
    progress, root = progress or NoProgress(), (cache or cache_root()).absolute()
    what = f"environment {key[:8]}"

    def fetched(record: Record) -> Environment:
        return make(lambda folder: _fetch(store, record, folder, root, progress))

    found = find_intact(cache_folder("environments", root) / key, root, progress)
    record = None if found and not store.push else store.find("environment", key)
    if record is not None:
        return found or fetched(record)
    if not store.push:
        return found or make(None)
    with store.claimed("environment", key, what, progress) as mine:
        if mine:
            environment = found or make(None)
            _push(store, environment, root, progress)
            return environment
        record = store.find("environment", key)
    return found or (fetched(record) if record else make(None))


def _fetch(store: SharedStore, record: Record, folder: Path, cache: Path, progress: Progress) -> None:
    """Fill an empty folder with the environment of a record."""
    content, size = record.facts.get("content"), record.facts.get("size")
    if not isinstance(content, str) or type(size) is not int or not 0 < size <= MOST_BYTES:
        raise store.objects.corrupt(record.path, "it describes no environment")
    progress.begin(f"fetch environment {record.key[:8]} from the store")
    archive = cache_folder("transfers", cache) / f"{record.key}.tar.gz"
    with being_made(archive):
        store.fetch(record, archive, progress)
        try:
            unpack_whole(archive, folder, content, size + _SPARE)
        except (InputError, EnvironmentBuildError) as error:
            raise store.objects.corrupt(record.path, error.message) from error
        finally:
            archive.unlink(missing_ok=True)
    progress.end(f"{record.size / 1e6:.1f} MB")


def _push(store: SharedStore, environment: Environment, cache: Path, progress: Progress) -> None:
    progress.begin(f"put environment {environment.key[:8]} into the store")
    archive = cache_folder("transfers", cache) / f"{environment.key}.new.tar.gz"
    with storage_errors(archive), being_made(archive):
        try:
            sizes = pack_whole(environment, archive, progress)
            facts = {
                "content": environment.content,
                "size": environment.size,
                "python": environment.python,
                "platform": environment.platform,
                "packages": [f"{package.name} {package.version}" for package in environment.packages],
            }
            sent = store.add("environment", environment.key, archive, sizes=sizes, facts=facts, progress=progress)
        except EnvironmentBuildError as error:
            if error.kind not in ("bad-archive", "link-leaves-environment"):
                raise
            progress.end(f"stays here: {error.message}")
            return
        finally:
            archive.unlink(missing_ok=True)
    size = sum(sizes)
    progress.end(f"{size / 1e6:.1f} MB" + (f", {sent / 1e6:.1f} MB of them sent" if sent < size else ""))
