"""Environments, stubs, locks and packages that only one machine has, in a store that machines share.

Environments and stubs are fetched by what decides their content, or made here and put there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from envpack.archive.tarball import pack_whole, unpack_whole
from envpack.conda.channels import describe_package
from envpack.environment.build import find_intact
from envpack.environment.store import Environment
from envpack.lock.lockfile import Lock, wheel_not_here
from envpack.requirements.location import can_read, local_file
from envpack.requirements.model import CondaPackage, PipPackage
from envpack.store.records import MOST_BYTES, Record
from envpack.store.shared import SharedStore
from envpack.stub.build import Stub, build_stub, find_stub, keep_stub
from envpack.stub.recipe import Cell
from envpack.support.bounded_reading import sha256_of
from envpack.support.entry_locks import being_made
from envpack.support.errors import EnvironmentBuildError, InputError, StorageError, StubError, storage_errors
from envpack.support.folders import cache_folder
from envpack.support.placed_files import LOCK_NAME
from envpack.support.progress import SILENT, Progress
from envpack.support.replacement import replaced_folder

_SPARE = 1 << 30  # bytes of an unpacked archive that are not content: headers, and the list of files

# Fills an empty folder with an environment.
Fill = Callable[[Path], None]


def obtain_environment(
    store: SharedStore,
    key: str,
    make: Callable[[Fill | None], Environment],
    cache: Path,
    progress: Progress,
) -> Environment:
    return _obtained(
        store,
        "environment",
        key,
        f"environment {key[:8]}",
        found=find_intact(cache_folder("environments", cache) / key, cache, progress),
        fetched=lambda record: make(lambda folder: _fetch_environment(store, record, folder, cache, progress)),
        make=lambda: make(None),
        push=lambda environment, again: _push_environment(store, environment, cache, progress, again=again),
        progress=progress,
    )


_Got = TypeVar("_Got")


def _obtained(
    store: SharedStore,
    kind: Literal["environment", "stub"],
    key: str,
    what: str,
    *,
    found: _Got | None,
    fetched: Callable[[Record], _Got],
    make: Callable[[], _Got],
    push: Callable[[_Got, bool], None],
    progress: Progress,
) -> _Got:
    """What is here, else in the store, else made now; with `SharedStore.push`, others wait, and the store gets it."""
    if found and not store.push:
        return found

    def there() -> _Got | None:
        record = store.find(kind, key)
        if record is None:
            return None
        if found:
            return found if store.complete(record) else None
        return fetched(record)

    got, damaged = _unless_damaged(there, what.removeprefix("the "), progress)
    if got or not store.push:
        return found or got or make()
    with store.claimed(kind, key, what, progress, again=damaged) as mine:
        if mine:
            product = found or make()
            push(product, damaged)
            return product
    return found or _unless_damaged(there, what.removeprefix("the "), progress)[0] or make()


def _unless_damaged(get: Callable[[], _Got | None], what: str, progress: Progress) -> tuple[_Got | None, bool]:
    """What a store has, if it can be used, and whether it is damaged there."""
    try:
        return get(), False
    except StorageError as error:
        if error.kind != "store-corrupt":
            raise
        progress.detail(f"the store's {what} cannot be used, so this machine makes its own: {error.message}")
        return None, True


def _fetch_environment(store: SharedStore, record: Record, folder: Path, cache: Path, progress: Progress) -> None:
    content, size = record.facts.get("content"), record.facts.get("size")
    if not isinstance(content, str) or type(size) is not int or not 0 < size <= MOST_BYTES:
        raise store.objects.corrupt(record.path, "it describes no environment")
    progress.begin(f"fetch environment {record.key[:8]} from the store")
    archive = cache_folder("transfers", cache) / f"{record.key}.tar.gz"
    with being_made(archive):
        try:
            store.fetch(record, archive, progress)
            unpack_whole(archive, folder, content, size + _SPARE)
        except (InputError, EnvironmentBuildError) as error:
            archive.unlink(missing_ok=True)
            raise store.objects.corrupt(record.path, error.message) from error
        except StorageError as error:
            if error.kind == "store-corrupt":  # else the next download continues
                archive.unlink(missing_ok=True)
            raise
        archive.unlink(missing_ok=True)
    progress.end(f"{record.size / 1e6:.1f} MB")


def _push_environment(
    store: SharedStore, environment: Environment, cache: Path, progress: Progress, *, again: bool = False
) -> None:
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
            sent = store.add(
                "environment",
                environment.key,
                archive,
                sizes=sizes,
                facts=facts,
                again=again,
                progress=progress,
            )
        except EnvironmentBuildError as error:
            if error.kind not in ("bad-archive", "link-leaves-environment"):
                raise
            progress.end(f"stays here: {error.message}")
            return
        finally:
            archive.unlink(missing_ok=True)
    size = sum(sizes)
    progress.end(f"{size / 1e6:.1f} MB" + (f", {sent / 1e6:.1f} MB of them sent" if sent < size else ""))


_MOST_OF_STUB = 64 << 20  # bytes of a stub; one has less than 2 MB


def stub_for(cell: Cell, *, jobs: int = 0, progress: Progress, store: SharedStore | None = None) -> Stub:
    make = partial(build_stub, cell, jobs=jobs, progress=progress)
    if store is None:
        return make()
    return _obtained(
        store,
        "stub",
        cell.key,
        f"the stub for Python {cell.target.minor}",
        found=find_stub(cell),
        fetched=lambda record: _fetched_stub(store, cell, record, progress),
        make=make,
        push=lambda stub, again: push_stub(store, stub, cell.key, again=again),
        progress=progress,
    )


def fetch_stub(store: SharedStore, cell: Cell, progress: Progress) -> Stub | None:
    record = store.find("stub", cell.key)
    return _fetched_stub(store, cell, record, progress) if record else None


def _fetched_stub(store: SharedStore, cell: Cell, record: Record, progress: Progress) -> Stub:
    if record.size > _MOST_OF_STUB:
        raise store.objects.corrupt(record.path, f"a stub has never {record.size} bytes")
    progress.begin(f"fetch the stub for Python {cell.target.minor} from the store")
    try:
        stub = keep_stub(cell, lambda file: store.fetch(record, file, progress), progress)
    except StubError as error:
        raise store.objects.corrupt(record.path, error.message) from error
    progress.end(f"{record.size / 1e6:.1f} MB")
    return stub


def push_stub(store: SharedStore, stub: Stub, key: str, *, again: bool = False) -> None:
    """Put a stub into the store, unless its key has a record there that is to stay."""
    if again or store.find("stub", key) is None:
        facts = {
            "python": stub.facts.python,
            "machine": stub.facts.machine,
            "glibc": stub.facts.glibc,
            "compiler": stub.facts.compiler,
        }
        store.add("stub", key, stub.path, facts=facts, again=again)


_MOST_OF_LOCK = 16 << 20  # bytes of a lock


def find_lock(store: SharedStore, key: str, progress: Progress) -> Lock | None:
    return _unless_damaged(partial(_lock, store, key), "lock", progress)[0]


def _lock(store: SharedStore, key: str) -> Lock | None:
    record = store.find("lock", key)
    if record is None:
        return None
    try:
        lock = Lock.parse(store.read(record, _MOST_OF_LOCK).decode(), Path(LOCK_NAME))
    except (InputError, UnicodeDecodeError) as error:
        raise store.objects.corrupt(record.path, "it contains no lock of this version of envpack") from error
    if not _is_usable(store, lock):
        raise store.objects.corrupt(
            record.path, "neither the store nor this machine has a wheel that it names by a path"
        )
    return lock


def _is_usable(store: SharedStore, lock: Lock) -> bool:
    """Whether the environment of a lock is there, or the wheels of local projects of which it is made."""
    absent = [wheel for wheel in lock.pip if wheel_not_here([wheel])]
    if all(store.find("package", wheel.sha256) for wheel in absent):
        return True
    return any(store.find("environment", lock.environment_key(strip=strip)) for strip in (False, True))


def push_lock(store: SharedStore, key: str, lock: Lock) -> None:
    """Put a lock into the store, unless its key has one, with the packages that it names by a path of this machine."""
    push_packages(store, lock)
    found, damaged = _unless_damaged(partial(_lock, store, key), "lock", SILENT)
    if not found:
        facts = {"python": lock.target.python, "platform": lock.target.platform, "environment": lock.key}
        store.add_bytes("lock", key, lock.text.encode(), facts=facts, again=damaged)


def push_packages(store: SharedStore, lock: Lock) -> None:
    """Put the packages into the store that the lock names by a path of this machine: interpreters, local projects."""
    packages: tuple[CondaPackage | PipPackage, ...] = (*lock.conda, *lock.pip)
    for package in packages:
        file = local_file(package.url)
        if file is None or not can_read(file) or not package.sha256:
            continue
        found, damaged = _unless_damaged(partial(_whole_package, store, package.sha256), "package", SILENT)
        if not found and sha256_of(file) == package.sha256:  # a wheel may have been built anew since it was locked
            facts = {"name": package.name, "version": package.version}
            store.add("package", package.sha256, file, facts=facts, again=damaged)


def _whole_package(store: SharedStore, key: str) -> Record | None:
    record = store.find("package", key)
    if record and [blob.sha256 for blob in record.blobs] != [key]:
        raise store.objects.corrupt(record.path, "it names another package")
    return store.complete(record) if record else None


_Package = TypeVar("_Package", CondaPackage, PipPackage)


def locate_packages(store: SharedStore, lock: Lock, cache: Path, progress: Progress) -> Lock:
    """The same lock with packages of another machine's disk downloaded; what the store lacks keeps its address."""
    conda = tuple(_located(store, package, cache, progress) for package in lock.conda)
    pip = tuple(_located(store, package, cache, progress) for package in lock.pip)
    return dataclasses.replace(lock, conda=conda, pip=pip)


def _located(store: SharedStore, package: _Package, cache: Path, progress: Progress) -> _Package:
    for name, record in _missing(store, package):
        is_conda = isinstance(package, CondaPackage)
        folder = cache_folder("channel" if is_conda else "wheels", cache) / package.sha256[:16]
        file = f"{package.subdir}/{name}" if isinstance(package, CondaPackage) else name
        with storage_errors(folder), being_made(folder):
            if not (folder / file).is_file() or sha256_of(folder / file) != package.sha256:
                with replaced_folder(folder) as partial:
                    progress.begin(f"fetch {package.name} {package.version} from the store")
                    store.fetch(record, partial / file, progress)
                    progress.end(f"{record.size / 1e6:.1f} MB")
                    if is_conda:
                        describe_package(partial, partial / file, package.sha256)
        return dataclasses.replace(package, url=(folder / file).as_uri())
    return package


def _missing(store: SharedStore, package: CondaPackage | PipPackage) -> Iterator[tuple[str, Record]]:
    """The file's name and the record of a package whose file is not on this machine, if the store has it."""
    file = local_file(package.url)
    if file is None or file.name in ("", "..") or can_read(file) or not package.sha256:
        return
    record = store.find("package", package.sha256)
    if record is not None and [blob.sha256 for blob in record.blobs] == [package.sha256]:
        yield file.name, record
