"""A stub for one Python: compiled here, or through a store that machines share."""

from __future__ import annotations

from envpack.releases import Release
from envpack.settings import ToolchainName
from envpack.store import SharedStore, obtain_stub
from envpack.stub import Stub, StubTarget, build_stub
from envpack.support.progress import Progress


def stub_for(
    target: StubTarget,
    releases: tuple[Release, ...] | None,
    *,
    toolchain: ToolchainName = "auto",
    glibc: str = "",
    jobs: int = 0,
    progress: Progress,
    store: SharedStore | None = None,
) -> Stub:
    """The stub for a Python, as `envpack.stub.build_stub` returns it; a store is looked into before it is compiled."""

    def made() -> Stub:
        return build_stub(target, releases, toolchain=toolchain, glibc=glibc, jobs=jobs, progress=progress)

    if store is None:
        return made()
    return obtain_stub(store, target, releases, made, toolchain=toolchain, glibc=glibc, progress=progress)
