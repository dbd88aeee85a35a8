"""Refusing what a compiler has made if it is not what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from envpack.releases import Release
from envpack.stub.inspection import StubFacts, inspect_stub
from envpack.stub.platforms import this_machine
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import OTHER_COMPILER, Toolchain
from envpack.support.elf import version_key
from envpack.support.errors import StubError
from envpack.support.processes import run

# Libraries of a C++ runtime. An environment may bring older ones than the stub was compiled with.
_RUNTIMES = ("libstdc++.so", "libgcc_s.so", "libc++.so", "libc++abi.so", "libunwind.so")


def accept_stub(made: Path, target: StubTarget, releases: Sequence[Release] | None, tools: Toolchain) -> None:
    """Look into a stub that was just compiled, and start it if it is for this machine.

    Raises:
        StubError: it is for something else than was asked for, needs more than it may, or does not start.
    """
    wrong = [*_mismatches(inspect_stub(made), target, releases, tools), *_failures(made, target)]
    if wrong:
        raise StubError(
            f"the stub that was compiled is not fit for use: {'; '.join(wrong)}",
            kind="compile-failed",
            where=str(made),
            hint=OTHER_COMPILER,
        )


def _mismatches(
    facts: StubFacts, target: StubTarget, releases: Sequence[Release] | None, tools: Toolchain
) -> Iterator[str]:
    if facts.machine != target.machine:
        yield f"it is for {facts.machine}, not for {target.machine}"
    if facts.python != target.minor:
        yield f"it is for Python {facts.python}, not for {target.minor}"
    unknown = [release.name for release in releases or () if release.stub_abi not in facts.epochs]
    if unknown:
        yield f"it cannot talk to Triton {', '.join(unknown)}"
    if tools.glibc and version_key(facts.glibc) > version_key(tools.glibc):
        yield f"it needs glibc {facts.glibc}, newer than {tools.glibc}"
    yield from (f"it needs {library}" for library in facts.needs if library.startswith(_RUNTIMES))


def _failures(made: Path, target: StubTarget) -> Iterator[str]:
    if target.machine != this_machine():
        return
    # The server's trial run: without arguments and without any library path it must exit with status 1.
    status = run([made], env={}).returncode
    if status != 1:
        yield f"it ends with status {status} where the server expects 1"
