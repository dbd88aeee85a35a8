"""Preflight of a model in its repository."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from envpack.archive import changed_files, is_archive, is_recorded_archive, read_metadata, refused_members
from envpack.inspection.facts import EnvironmentFacts, Host, read_environment_facts, read_stub_requirements
from envpack.inspection.rules import find_mismatches
from envpack.repository import PYTHON_BACKEND, STUB_NAME, Model, environment_of
from envpack.settings import Release
from envpack.support.errors import Finding, InputError, StubError
from envpack.support.text import printable


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

    The archive is read to its end, and nothing is unpacked.
    """
    path = environment_of(model)
    if path is None or not is_archive(path):
        return None
    try:
        refused = refused_members(path, strict=release.strict_archives if release else False)
    except InputError as error:
        return Finding(error.kind, f"{path}: {error.message}", error.hint)
    if not refused:
        return None
    where = f"{path}: {refused[0].path}: " if refused[0].path else f"{path}: "
    return Finding("archive-refused", f"{where}{refused[0].reason}", "build it with `envpack build`")


def find_damage(model: Model) -> Finding | None:
    """Whether the model's execution environment was changed since envpack placed it.

    Files are read only if their size or time stamp is not the recorded one. Environments of other programs have none.
    """
    path = environment_of(model)
    metadata = read_metadata(path) if path else {}
    if path is None or not metadata:
        return None
    if path.is_dir():
        changed = changed_files(path, str(metadata.get("key", "")))
        if not changed:
            return None
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        what = f"{path}: {printable(changed[0])} was changed or removed after the build{more}"
    elif is_recorded_archive(path):
        return None
    else:
        what = f"{path} was changed after the build"
    return Finding("environment-changed", what, f"run `envpack build {model.folder.name}`")


def _backend_stub(model: Model, default_stub: Path | None, backends: Path | None) -> Path | None:
    """The stub of the model's backend, None if unknown."""
    if model.backend == PYTHON_BACKEND:
        return default_stub
    stub = backends / model.backend / STUB_NAME if backends else None
    return stub if stub and stub.is_file() else None


def _environment(model: Model) -> EnvironmentFacts | None:
    """Facts of the model's execution environment, None if the model has none or the facts cannot be determined.

    The server reports an unreadable environment. One without libpython, such as a venv, may use the system's.
    """
    path = environment_of(model)
    try:
        facts = read_environment_facts(path) if path else None
    except InputError:
        return None
    return facts if facts and facts.python else None
