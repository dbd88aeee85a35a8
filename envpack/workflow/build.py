"""From a model's requirements to its place in the repository: the arrows of a build, one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envpack.archive import Format, format_costs, read_metadata
from envpack.environment import Environment, environment_from_prefix
from envpack.inspection import record_requirements
from envpack.preflight import (
    EnvironmentFacts,
    find_mismatches,
    image_host,
    read_environment_facts,
    read_stub_requirements,
)
from envpack.pythons import interpreter_for
from envpack.repository import PYTHON_BACKEND, configured_start, open_model, python_configs
from envpack.settings import Project
from envpack.store import SharedStore
from envpack.stub import target_from_prefix
from envpack.support.entry_locks import ingredients_in_use, kept
from envpack.support.errors import EnvironmentBuildError, StubError
from envpack.support.progress import NoProgress, Progress
from envpack.support.storage_errors import storage_errors
from envpack.support.text import counted
from envpack.workflow.foreign import foreign_paths, refuse_foreign
from envpack.workflow.lock import locked_environment, numpy_missing
from envpack.workflow.placement import numpy_version, place, wants_stub
from envpack.workflow.pythons import with_another_python
from envpack.workflow.requests import BuildRequest, LockRequest, PrefixRequest, build_request
from envpack.workflow.stubs import stub_for
from envpack.workflow.warnings import requirement_warnings


@dataclass(frozen=True, kw_only=True)
class BuiltModel:
    """A model that has its environment.

    Attributes:
        name: the model.
        python: full version of its Python, ``""`` for an ensemble.
        numpy: version of NumPy in the environment.
        packages: how many packages the environment holds.
        environment: folder or archive beside the model.
        stub: the stub beside the model or in its backend; ``None`` if the release's own serves it.
        backend: name of the backend that serves it, ``""`` for an ensemble.
        start: ``"warm"`` or ``"cold"``, as its configuration names it; ``""`` if it names neither, and for an ensemble.
        changed: whether anything on disk was changed.
        forms: what each form of the environment costs, whichever was built.
        warnings: what of its requirements was not read or does not fit the model's code.
    """

    name: str
    python: str = ""
    numpy: str = ""
    packages: int = 0
    environment: Path | None = None
    stub: Path | None = None
    backend: str = ""
    start: str = ""
    changed: bool = False
    forms: tuple[Format, ...] = ()
    warnings: tuple[str, ...] = ()


def build_model(
    project: Project,
    name: str,
    progress: Progress | None = None,
    *,
    store: SharedStore | None = None,
) -> BuiltModel:
    """Build a model's execution environment and put it, and a stub if it needs one, beside the model.

    All checks of this model come before the first change. Each file or folder is replaced in one step, and config.pbtxt
    comes last, so it never names an environment that does not exist.

    Args:
        project: the model repository and its settings.
        name: of the model.
        progress: receives each step.
        store: a store that machines share, as `project_store` opens it; it is looked into before anything is built.

    Raises:
        InputError: the model, its configuration or its requirements are wrong.
        UsageError: an unknown Python version or release, a release that does not accept this form of environment, or
            settings that do not go together.
        EnvironmentBuildError: the environment cannot be resolved, installed or packed.
        StubError: the stub cannot be compiled.
        StorageError: the store cannot be used, or the disk is full.
    """
    progress = progress or NoProgress()
    model = open_model(project.repository / name)
    if model.is_ensemble:
        progress.begin(f"{model.name}: an ensemble")
        progress.end("needs no environment")
        return BuiltModel(name=name)
    python_configs(model.folder)  # what is wrong with a custom configuration is an error before any work
    request = build_request(project, model)
    try:
        return build(request, progress, store)
    except EnvironmentBuildError as error:
        another = with_another_python(project, request.source, error, progress)
        if another is None:
            raise
    return build(build_request(another, model), progress, store)


def build(request: BuildRequest, progress: Progress, store: SharedStore | None = None) -> BuiltModel:
    """Carry out a build; raises what `build_model` does."""
    with storage_errors(request.model.folder), made_ingredients(request, progress, store) as (environment, binary):
        progress.begin(
            f"{request.model.name}: Python {environment.python}, {counted(len(environment.packages), 'package')}"
        )
        placed = place(request, environment, binary, progress)
        source = request.source
        record_requirements(placed.environment, None if isinstance(source, PrefixRequest) else source.requirements)
        progress.end(f"placed as {placed.environment.name}" if placed.changed else "up to date")
        metadata = read_metadata(placed.environment)
        return BuiltModel(
            name=request.model.name,
            python=environment.python,
            numpy=numpy_version(environment),
            packages=len(environment.packages),
            environment=placed.environment,
            stub=placed.stub if placed.stub.exists() else None,
            backend=placed.backend or PYTHON_BACKEND,
            start=_start(request),
            changed=placed.changed,
            forms=format_costs(metadata),
            warnings=_warnings(request, environment),
        )


@contextlib.contextmanager
def made_ingredients(
    request: BuildRequest, progress: Progress, store: SharedStore | None = None
) -> Iterator[tuple[Environment, Path | None]]:
    """The environment and, if the model gets one, the stub, which stay in the cache while the block runs."""
    with contextlib.ExitStack() as stack:
        if isinstance(request.source, LockRequest) and not request.force:  # before the work, since it would be in vain
            refuse_foreign(foreign_paths(request, request.source.target.python), force=False)
        environment = stack.enter_context(
            kept(lambda: environment_for(request, progress, store), lambda environment: environment.prefix)
        )
        facts = read_environment_facts(environment.prefix)
        for mismatch in find_mismatches(None, facts, request.release, image_host(request.release)):
            where = str(request.model.folder)
            raise EnvironmentBuildError(mismatch.reason, kind=mismatch.kind, where=where, hint=mismatch.fix)
        binary = None
        if wants_stub(request, environment):
            binary = stack.enter_context(
                kept(
                    lambda: _fitting_stub(facts, request, progress, store),
                    lambda stub: stub.parent,
                )
            )
        yield environment, binary


def _warnings(request: BuildRequest, environment: Environment) -> tuple[str, ...]:
    if isinstance(request.source, PrefixRequest):
        return ()
    names = {package.name for package in environment.packages}
    return requirement_warnings(request.model, request.source.requirements, names)


def _start(request: BuildRequest) -> str:
    """What config.pbtxt says of the start after a build; ``--start cold`` removes the parameter."""
    if request.start:
        return request.start if request.start == "warm" else ""
    return configured_start(request.model.config)


def environment_for(request: BuildRequest, progress: Progress, store: SharedStore | None) -> Environment:
    """The environment of a model, in the cache; raises what `build_model` does."""
    source = request.source
    if isinstance(source, PrefixRequest):
        environment = environment_from_prefix(
            source.prefix,
            python=source.python,
            platform=source.platform,
            glibc=request.release.glibc,
            progress=progress,
            strip=request.strip,
        )
        if not numpy_version(environment):
            raise numpy_missing("the environment", source.prefix, "install NumPy into it: pip install numpy")
        return environment
    with ingredients_in_use(source.options.cache):
        return locked_environment(source, progress, strip=request.strip, store=store)


def _fitting_stub(
    environment: EnvironmentFacts, request: BuildRequest, progress: Progress, store: SharedStore | None
) -> Path:
    """A stub for the environment that runs in the release's image; with zig if the system compiler's does not."""
    release, toolchain, source = request.release, request.toolchain, request.source

    def find_headers(minor: str) -> Path:
        preference = source.options.python_preference if isinstance(source, LockRequest) else "system"
        return interpreter_for(minor, preference=preference, headers=True, progress=progress).include

    target, image = target_from_prefix(environment.path, find_headers=find_headers), image_host(release)
    stub = stub_for(target, None, toolchain=toolchain, progress=progress, store=store)
    mismatches = find_mismatches(read_stub_requirements(stub.path), environment, release, image)
    if toolchain == "auto" and any(mismatch.kind == "glibc-too-old" for mismatch in mismatches):
        stub = stub_for(target, None, toolchain="zig", progress=progress, store=store)
        mismatches = find_mismatches(read_stub_requirements(stub.path), environment, release, image)
    for mismatch in mismatches:
        raise StubError(mismatch.reason, kind=mismatch.kind, hint=mismatch.fix)
    return stub.path
