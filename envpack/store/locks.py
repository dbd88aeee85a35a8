"""Locks, and the packages that only one machine has, through a store that machines share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from envpack.conda import keep_package
from envpack.lock import Lock, format_lock, parse_lock
from envpack.requirements import CondaPackage, PipPackage
from envpack.store.records import Blob
from envpack.store.shared import SharedStore
from envpack.support.entry_locks import being_made
from envpack.support.errors import InputError
from envpack.support.failures import storage_errors
from envpack.support.folders import cache_folder
from envpack.support.progress import Progress
from envpack.support.replacement import new_folder

_MOST = 16 << 20  # bytes of a lock


def find_lock(store: SharedStore, key: str) -> Lock | None:
    """The lock that the store has for a key, ``None`` if it has none."""
    record = store.find("lock", key)
    if record is None:
        return None
    try:
        return parse_lock(store.read(record, _MOST).decode(), Path("envpack.lock"))
    except (InputError, UnicodeDecodeError) as error:
        raise store.objects.corrupt(record.path, "it contains no lock of this version of envpack") from error


def push_lock(store: SharedStore, key: str, lock: Lock) -> None:
    """Put a lock into the store, with the packages that it names by a path of this machine."""
    push_packages(store, lock)
    if store.find("lock", key) is None:
        facts = {"python": lock.target.python, "platform": lock.target.platform, "environment": lock.key}
        store.add_bytes("lock", key, format_lock(lock).encode(), facts=facts)


def push_packages(store: SharedStore, lock: Lock) -> None:
    """Put the packages into the store that the lock names by a path of this machine: interpreters, local projects."""
    packages: tuple[CondaPackage | PipPackage, ...] = (*lock.conda, *lock.pip)
    for package in packages:
        file = _local_file(package)
        if file is not None and file.is_file() and package.sha256 and store.find("package", package.sha256) is None:
            store.add("package", package.sha256, file, facts={"name": package.name, "version": package.version})


def locate_packages(store: SharedStore, lock: Lock, cache: Path, progress: Progress) -> Lock:
    """The same lock, with packages of another machine's disk at the place to which they were downloaded.

    What the store does not have keeps its address.
    """
    conda = tuple(_located_conda(store, package, cache, progress) for package in lock.conda)
    pip = tuple(_located_wheel(store, package, cache, progress) for package in lock.pip)
    return dataclasses.replace(lock, conda=conda, pip=pip)


def _located_conda(store: SharedStore, package: CondaPackage, cache: Path, progress: Progress) -> CondaPackage:
    for name, blob in _missing(store, package):
        file = keep_package(
            cache,
            sha256=blob.sha256,
            file=f"{package.subdir}/{name}",
            version=package.version,
            build=package.build,
            fill=lambda target, blob=blob: _fetch(store, package, blob, target, progress),  # type: ignore[misc]
        )
        return dataclasses.replace(package, url=file.as_uri())
    return package


def _located_wheel(store: SharedStore, package: PipPackage, cache: Path, progress: Progress) -> PipPackage:
    for name, blob in _missing(store, package):
        folder = cache_folder("wheels", cache) / blob.sha256[:16]
        with storage_errors(folder), being_made(folder):
            if not (folder / name).is_file():
                with new_folder(folder) as partial:
                    _fetch(store, package, blob, partial / name, progress)
        return dataclasses.replace(package, url=(folder / name).as_uri())
    return package


def _missing(store: SharedStore, package: CondaPackage | PipPackage) -> Iterator[tuple[str, Blob]]:
    """Name and blob of a package whose file is not on this machine, if the store has it."""
    file = _local_file(package)
    if file is None or file.is_file() or not package.sha256:
        return
    record = store.find("package", package.sha256)
    if record is not None and len(record.blobs) == 1 and record.blobs[0].sha256 == package.sha256:
        yield file.name, record.blobs[0]


def _local_file(package: CondaPackage | PipPackage) -> Path | None:
    """The file that a lock names by a path, ``None`` for other addresses."""
    address = urlsplit(package.url)
    if address.scheme != "file":
        return None
    path = PurePosixPath(unquote(address.path))
    return Path(path) if path.name not in ("", "..") else None


def _fetch(store: SharedStore, package: CondaPackage | PipPackage, blob: Blob, file: Path, progress: Progress) -> None:
    progress.begin(f"fetch {package.name} {package.version} from the store")
    store.fetch_blobs([blob], file, progress)
    progress.end(f"{blob.size / 1e6:.1f} MB")
