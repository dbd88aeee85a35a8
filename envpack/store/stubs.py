"""Stubs through a store that machines share: fetched by what decides their content, or compiled and put there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from envpack.releases import Release
from envpack.settings import ToolchainName
from envpack.store.shared import SharedStore
from envpack.stub import Stub, StubTarget, find_stub, keep_stub, stub_key
from envpack.support.errors import StubError
from envpack.support.progress import NoProgress, Progress

_MOST = 64 << 20  # bytes of a stub; one has less than 2 MB


def obtain_stub(
    store: SharedStore,
    target: StubTarget,
    releases: tuple[Release, ...] | None,
    make: Callable[[], Stub],
    *,
    toolchain: ToolchainName = "auto",
    glibc: str = "",
    progress: Progress | None = None,
) -> Stub:
    """The stub for a Python: from this machine, else from the store, else compiled now.

    With `SharedStore.push` the store has it afterwards. While this machine compiles it, others wait for it.
    """
    progress = progress or NoProgress()
    key = stub_key(target, releases, toolchain=toolchain, glibc=glibc)
    found = find_stub(target, releases, toolchain=toolchain, glibc=glibc)
    if found is None:
        fetched = fetch_stub(store, target, releases, toolchain=toolchain, glibc=glibc, progress=progress)
        if fetched is not None or not store.push:
            return fetched or make()
    if found is not None and (not store.push or store.find("stub", key) is not None):
        return found
    with store.claimed("stub", key, f"the stub for Python {target.minor}", progress) as mine:
        if mine:
            stub = found or make()
            push_stub(store, stub, key)
            return stub
    fetched = found or fetch_stub(store, target, releases, toolchain=toolchain, glibc=glibc, progress=progress)
    return fetched or make()


def fetch_stub(
    store: SharedStore,
    target: StubTarget,
    releases: tuple[Release, ...] | None,
    *,
    toolchain: ToolchainName = "auto",
    glibc: str = "",
    progress: Progress,
) -> Stub | None:
    """The stub that the store has for these arguments, as those of `obtain_stub`; ``None`` if it has none."""
    key = stub_key(target, releases, toolchain=toolchain, glibc=glibc)
    record = store.find("stub", key)
    if record is None:
        return None
    if record.size > _MOST:
        raise store.objects.corrupt(record.path, f"a stub has never {record.size} bytes")
    progress.begin(f"fetch the stub for Python {target.minor} from the store")

    def fill(file: Path) -> None:
        store.fetch(record, file, progress)

    try:
        stub = keep_stub(key, target, fill, progress=progress)
    except StubError as error:
        raise store.objects.corrupt(record.path, error.message) from error
    progress.end(f"{record.size / 1e6:.1f} MB")
    return stub


def push_stub(store: SharedStore, stub: Stub, key: str) -> None:
    """Put a stub into the store, unless its key has a record there."""
    if store.find("stub", key) is None:
        facts = {
            "python": stub.facts.python,
            "machine": stub.facts.machine,
            "glibc": stub.facts.glibc,
            "compiler": stub.facts.compiler,
        }
        store.add("stub", key, stub.path, facts=facts)
