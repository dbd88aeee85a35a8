"""Preflight: whether stub, execution environment, Triton release and host of a model fit each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from envpack.archive.inspection import damage_of, refused_members
from envpack.inspection.facts import (
    EnvironmentFacts,
    Host,
    StubRequirements,
    read_environment_facts,
    read_stub_requirements,
)
from envpack.inspection.files import find_unsupported_archive, rebuild_fix
from envpack.repository.model import Model
from envpack.repository.placement import PYTHON_BACKEND
from envpack.settings.pythons import is_fetchable
from envpack.settings.releases import Release, all_releases
from envpack.support.bounded_reading import is_pointer, pointer_finding
from envpack.support.elf import version_key
from envpack.support.errors import Finding, InputError, StubError
from envpack.support.folders import check_enterable
from envpack.support.placed_files import STUB_NAME
from envpack.support.platforms import libpython_name


def preflight_model(
    model: Model,
    *,
    default_stub: Path | None = None,
    release: Release | None = None,
    host: Host | None = None,
    backends: Path | None = None,
) -> tuple[Finding, ...]:
    """Find incompatibilities that prevent a server from serving the model; empty if none is known."""
    if model.is_ensemble:
        return ()
    own = model.folder / STUB_NAME
    stub = own if own.is_file() else _backend_stub(model, default_stub, backends)
    try:
        needs = read_stub_requirements(stub) if stub else None
    except StubError as error:
        no_stub = Finding(error.kind, f"{stub} is not a stub: {error.message}", error.hint)
        return () if stub == default_stub else (no_stub,)
    if needs and stub == default_stub:
        needs = dataclasses.replace(
            needs, path=own
        )  # a hint names the model's stub: the server's is not ours to replace
    return find_mismatches(needs, _environment(model), release, host)


def find_unsafe_archive(model: Model, release: Release | None) -> Finding | None:
    """Whether unpacking the model's archive would fill the server's disk, fail, or write outside of its folder.

    The archive is read to its end, and nothing is unpacked. A server that fails to unpack one unpacks none any more.
    """
    path = model.environment
    if path is None or not path.is_file():
        return None
    if unread := pointer_finding(path) if is_pointer(path) else find_unsupported_archive(model):
        return Finding(unread.kind, f"{path}: {unread.what}", unread.fix)
    try:
        refused = refused_members(path, strict=release.strict_archives if release else False)
    except InputError as error:
        return Finding(error.kind, f"{path}: {error.message}", error.hint)
    if not refused:
        return None
    where = f"{path}: {refused[0].path}: " if refused[0].path else f"{path}: "
    return Finding("archive-refused", f"{where}{refused[0].reason}", rebuild_fix(model))


def find_damage(model: Model) -> Finding | None:
    """Whether the model's execution environment was changed since envpack placed it."""
    what = damage_of(model.environment) if model.environment else ""
    return Finding("environment-changed", what, f"run `envpack build {model.folder.name}`") if what else None


def _backend_stub(model: Model, default_stub: Path | None, backends: Path | None) -> Path | None:
    if model.backend == PYTHON_BACKEND:
        return default_stub
    folder = backends / model.backend if backends else None
    if folder is None or not folder.is_dir():
        return None
    check_enterable(folder)
    return folder / STUB_NAME if (folder / STUB_NAME).is_file() else None


def _environment(model: Model) -> EnvironmentFacts | None:
    """Facts of the model's execution environment, None if the model has none or the facts cannot be determined.

    The server reports an unreadable environment. One without libpython, such as a venv, may use the system's.
    """
    path = model.environment
    try:
        facts = read_environment_facts(path) if path else None
    except InputError:
        return None
    return facts if facts and facts.python else None


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
