"""Preflight of a model as it stands in its repository."""

from __future__ import annotations

from pathlib import Path

from envpack.errors import InputError, StubError
from envpack.preflight.environment_facts import EnvironmentFacts, read_environment_facts
from envpack.preflight.host import Host
from envpack.preflight.rules import Mismatch, find_mismatches
from envpack.preflight.stub_needs import read_stub_needs
from envpack.releases import Release
from envpack.repository import STUB_NAME, Model, environment_of


def preflight_model(
    model: Model, *, default_stub: Path | None = None, release: Release | None = None, host: Host | None = None
) -> tuple[Mismatch, ...]:
    """What will not go together when a server loads the model; empty if nothing is known to be wrong.

    Args:
        model: the model.
        default_stub: the stub of the server's Python backend, which serves models that have none of their own.
        release: the server's release, None if it is not known.
        host: what the server runs in.
    """
    if model.is_ensemble:
        return ()
    own = model.folder / STUB_NAME
    stub = own if own.is_file() else default_stub if model.backend == "python" else None
    try:
        needs = read_stub_needs(stub) if stub else None
    except StubError as error:
        return (Mismatch(error.kind, f"{stub} is no stub: {error.message}", error.hint),) if stub == own else ()
    return find_mismatches(needs, _environment(model), release, host)


def _environment(model: Model) -> EnvironmentFacts | None:
    """The model's environment, None if it has none, or none that can be judged.

    What cannot be read the server complains about. One without a libpython, such as a venv, may use the system's.
    """
    path = environment_of(model)
    try:
        facts = read_environment_facts(path) if path else None
    except InputError:
        return None
    return facts if facts and facts.python else None
