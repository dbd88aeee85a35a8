"""The compatibility rules of stub, execution environment, Triton release and host."""

from __future__ import annotations

from collections.abc import Iterator

from envpack.conda import is_fetchable
from envpack.inspection.facts import EnvironmentFacts, Host, StubRequirements
from envpack.settings import Release, all_releases
from envpack.support.elf import version_key
from envpack.support.errors import Finding
from envpack.support.platforms import libpython_name


def find_mismatches(
    stub: StubRequirements | None,
    environment: EnvironmentFacts | None = None,
    release: Release | None = None,
    host: Host | None = None,
) -> tuple[Finding, ...]:
    """Compare the given facts; missing and unknown facts count as compatible."""
    return (
        *(_python_and_machine(stub, environment) if stub and environment else ()),
        *_libstdcxx(stub, environment, host),
        *(_release(stub, release) if stub and release else ()),
        *(_stub_on_host(stub, host) if stub and host else ()),
        *(_environment_on_host(environment, host) if environment and host else ()),
    )


def _python_and_machine(stub: StubRequirements, environment: EnvironmentFacts) -> Iterator[Finding]:
    if not environment.python:
        what = f"the environment has no lib/{libpython_name(stub.python)}, which the stub loads"
        fix = f"build one with `envpack build --python {stub.python}`, or use a Python built with --enable-shared"
        yield Finding("libpython-missing", what, fix)
        return
    if environment.python != stub.python:
        what = f"the stub embeds Python {stub.python}, but the environment has Python {environment.python}"
        yield Finding("python-mismatch", what, f"compile a stub for it: {_stub_command(stub, environment)}")
    if environment.machine != stub.machine:
        what = f"the stub is for {stub.machine}, but the environment is for {environment.machine}"
        yield Finding("machine-mismatch", what, f"compile a stub for it: {_stub_command(stub, environment)}")


def _stub_command(stub: StubRequirements, environment: EnvironmentFacts) -> str:
    target = f"--prefix {environment.path}" if environment.path.is_dir() else f"--python {environment.python}"
    return f"`envpack stub {target} --output {stub.path.parent}`"


def _libstdcxx(
    stub: StubRequirements | None, environment: EnvironmentFacts | None, host: Host | None
) -> Iterator[Finding]:
    # The server searches the environment's lib folder before the system's.
    name, has = ("the environment", environment.glibcxx) if environment else ("", "")
    if not has and host:
        name, has = host.name, host.glibcxx
    if stub and _is_older(has, stub.glibcxx):
        what = f"the stub needs GLIBCXX_{stub.glibcxx} of libstdc++, but {name} only has GLIBCXX_{has}"
        fix = "use envpack's stub, which needs no libstdc++, or add a newer libstdcxx-ng to the environment"
        yield Finding("libstdcxx-too-old", what, fix)
    if environment and _is_older(has, environment.needed_glibcxx):
        what = (
            f"the environment's files need GLIBCXX_{environment.needed_glibcxx} of libstdc++, but {name} only has"
            f" GLIBCXX_{has}"
        )
        yield Finding("libstdcxx-too-old", what, "add a newer libstdcxx-ng to the environment's requirements")


def _release(stub: StubRequirements, release: Release) -> Iterator[Finding]:
    if stub.epochs and release.stub_abi not in stub.epochs:
        what = (
            f"the stub supports ABI epochs {', '.join(stub.epochs)}, but Triton {release.name} has {release.stub_abi}"
        )
        yield Finding("release-mismatch", what, "compile a stub for all releases, without --triton, or for this one")
    named = all_releases().get(stub.release_file)
    if stub.epochs and named and release.known and named.stub_abi != release.stub_abi:
        what = f"the release file beside the stub names Triton {stub.release_file}, but the server is {release.name}"
        yield Finding("release-mismatch", what, f"write {release.name} into {stub.path}.release, or delete that file")


def _stub_on_host(stub: StubRequirements, host: Host) -> Iterator[Finding]:
    if host.machine and stub.machine != host.machine:
        fix = f"compile a stub with a Python for {host.machine}: `envpack stub --prefix`"
        yield Finding("machine-mismatch", f"the stub is for {stub.machine}, but {host.name} is {host.machine}", fix)
    if _is_older(host.glibc, stub.glibc):
        what = f"the stub needs glibc {stub.glibc}, but {host.name} has {host.glibc}"
        yield Finding("glibc-too-old", what, f"compile it with --toolchain zig --glibc {host.glibc}")


def _environment_on_host(environment: EnvironmentFacts, host: Host) -> Iterator[Finding]:
    if host.machine and environment.machine and environment.machine != host.machine:
        what = f"the environment is for {environment.machine}, but {host.name} is {host.machine}"
        yield Finding("machine-mismatch", what, f"build the environment on a machine with {host.machine}")
    if _is_older(host.glibc, environment.glibc):
        managed = "--set python_preference=managed or with " if is_fetchable(environment.python) else ""
        what = f"the environment needs glibc {environment.glibc}, but {host.name} has {host.glibc}"
        yield Finding("glibc-too-old", what, f"build it with {managed}older packages, or serve it with a newer release")


def _is_older(has: str, needs: str) -> bool:
    return bool(has and needs) and version_key(has) < version_key(needs)
