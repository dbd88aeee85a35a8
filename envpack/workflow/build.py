"""From a model's requirements to its place in the repository: the arrows of a build, one after the other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envpack.archive.manifest import Format, format_costs, read_metadata
from envpack.conda.choice import interpreter_for
from envpack.environment.store import Environment
from envpack.inspection.facts import EnvironmentFacts, image_host, read_environment_facts, read_stub_requirements
from envpack.inspection.imports import requirement_warnings
from envpack.inspection.preflight import find_damage, find_mismatches
from envpack.inspection.state import record_requirements
from envpack.lock.lockfile import digest_requirements
from envpack.repository.config_choices import python_configs
from envpack.repository.model import Model
from envpack.repository.placement import PYTHON_BACKEND, place_stub
from envpack.repository.selection import named_models
from envpack.settings.project import Project
from envpack.store.shared import SharedStore
from envpack.stub.recipe import Cell
from envpack.stub.target import target_from_interpreter, target_from_prefix
from envpack.support.entry_locks import ingredients_in_use, kept
from envpack.support.errors import EnvironmentBuildError, InputError, StubError, storage_errors
from envpack.support.folders import cache_root, real_path
from envpack.support.installation import Installation
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import SILENT, Progress
from envpack.support.text import counted
from envpack.workflow.lock import locked_environment, numpy_missing, report_python
from envpack.workflow.placement import (
    check_compiling_first,
    check_placement,
    foreign_paths,
    foreign_stub,
    numpy_version,
    place,
    refuse_foreign,
    refuse_own_source,
    wants_stub,
)
from envpack.workflow.python_choice import with_another_python
from envpack.workflow.recipe import Recipe, TakenOver
from envpack.workflow.requests import (
    Build,
    Placement,
    build_request,
    kept_environment,
    lock_request,
    needs_stub,
    refuse_unusable,
    without_effect,
)
from envpack.workflow.shared import stub_for


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
        warnings: what of its requirements was not read or does not fit the model's code; what was removed beside it,
            or stays although it is not used any more.
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
    progress: Progress = SILENT,
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
        store: a store that machines share, as `project_store` opens it; it is searched before anything is built.

    Raises:
        InputError: the model, its configuration or its requirements are wrong.
        UsageError: an unknown Python version or release, a release that does not accept this form of environment, or
            settings that do not go together.
        EnvironmentBuildError: the environment cannot be resolved, installed or packed.
        StubError: the stub cannot be compiled.
        StorageError: the store cannot be used, or the disk is full.
    """
    (model,) = named_models(project.repository, [name])
    if model.is_ensemble:
        progress.begin(f"{model.name}: an ensemble")
        progress.end("needs no environment")
        return BuiltModel(name=model.name)
    if found := kept_environment(project, model):
        return _keep(project, model, found, progress, store)
    python_configs(model.folder)  # what is wrong with a custom configuration is an error before any work
    request = build_request(project, model)
    try:
        return build(request, progress, store)
    except EnvironmentBuildError as error:
        another = with_another_python(project, request.source, request.python, error, progress)
    return build(build_request(another, model), progress, store)


def _keep(
    project: Project, model: Model, environment: Path, progress: Progress, store: SharedStore | None
) -> BuiltModel:
    """Leave a model its environment, and give it a stub if the release's own cannot serve that."""
    with storage_errors(model.folder):
        changed = False
        refuse_unusable(project, model)
        if needs_stub(project, model):
            refuse_foreign(foreign_stub(model.folder), force=False)
            facts, recipe = read_environment_facts(environment), lock_request(project, model)[0]
            with kept(lambda: _fitting_stub(facts, recipe, progress, store), lambda stub: stub.parent) as binary:
                changed = place_stub(binary, model.folder)
        progress.begin(f"{model.name}: no requirements of its own")
        progress.end(f"keeps {os.path.relpath(real_path(environment), real_path(model.folder.parent))}")
    stub = model.folder / STUB_NAME
    return BuiltModel(
        name=model.folder.name,
        environment=environment,
        stub=stub if stub.exists() else None,
        backend=model.backend,
        start=model.start,
        changed=changed,
        warnings=without_effect(project, model),
    )


def build(request: Build, progress: Progress, store: SharedStore | None = None) -> BuiltModel:
    source, placement = request.source, request.placement
    model = placement.model
    report_python(request.python, progress)
    with storage_errors(model.folder):
        if isinstance(source, Recipe):  # before the work, since it would be in vain
            check_placement(placement, source.target.python)
            if not placement.said.force:
                refuse_foreign(foreign_paths(placement, source.target.python), force=False)
            check_compiling_first(placement, source, shared=store is not None)
        requirements = source.requirements if isinstance(source, Recipe) else None
        asked = requirements and digest_requirements(requirements, ())
        with made_ingredients(source, progress, store) as (environment, binary):
            progress.begin(
                f"{model.name}: Python {environment.python}, {counted(len(environment.packages), 'package')}"
            )
            if isinstance(source, TakenOver):
                refuse_own_source(source, placement, environment.minor)
            placed = place(placement, environment, binary, progress)
            is_same = requirements and digest_requirements(requirements, ()) == asked  # no project changed meanwhile
            record_requirements(placed.environment, requirements if is_same else None)
            progress.end(f"placed as {placed.environment.name}" if placed.changed else "up to date")
            return BuiltModel(
                name=model.name,
                python=environment.python,
                numpy=numpy_version(environment),
                packages=len(environment.packages),
                environment=placed.environment,
                stub=placed.stub if placed.stub.exists() else None,
                backend=placed.backend or PYTHON_BACKEND,
                start=_start(placement),
                changed=placed.changed,
                forms=format_costs(read_metadata(placed.environment)),
                warnings=(*placed.warnings, *_warnings(model, source, environment)),
            )


@contextlib.contextmanager
def made_ingredients(
    source: Recipe | TakenOver, progress: Progress, store: SharedStore | None = None
) -> Iterator[tuple[Environment, Path | None]]:
    """The environment and, if the model gets one, the stub, which stay in the cache while the block runs."""
    with contextlib.ExitStack() as stack:
        environment = stack.enter_context(
            kept(lambda: environment_for(source, progress, store), lambda environment: environment.prefix)
        )
        facts, release = read_environment_facts(environment.prefix), source.release
        for mismatch in find_mismatches(None, facts, release, image_host(release)):
            where = str(source.lock_file.parent if isinstance(source, Recipe) else source.prefix)
            raise EnvironmentBuildError(mismatch.kind, mismatch.what, mismatch.fix, where)
        binary = None
        if wants_stub(source, environment):
            binary = stack.enter_context(
                kept(lambda: _fitting_stub(facts, source, progress, store), lambda stub: stub.parent)
            )
        yield environment, binary


def _warnings(model: Model, source: Recipe | TakenOver, environment: Environment) -> Iterator[str]:
    if isinstance(source, Recipe):
        names = {package.name for package in environment.packages}
        yield from requirement_warnings(model, source.requirements, environment.python, names)


def _start(request: Placement) -> str:
    """What config.pbtxt says of the start after a build; ``--start cold`` removes the parameter."""
    if request.said.start:
        return request.said.start if request.said.start == "warm" else ""
    return request.model.start


def environment_in_cache(
    project: Project, model: Model, progress: Progress, store: SharedStore | None = None
) -> Environment:
    """The environment that a build of a model would place, which stays in the cache."""
    request = build_request(project, model)
    report_python(request.python, progress)
    return environment_for(request.source, progress, store)


def environment_to_run(
    project: Project, model: Model, progress: Progress, store: SharedStore | None = None
) -> Environment:
    """As `environment_in_cache`, for a model that has no folder with an environment."""
    found, placed = environment_in_cache(project, model, progress, store), model.environment
    key = read_metadata(placed).get("key") if placed is not None and placed.is_file() else found.key
    if placed is None or key == found.key:
        damage = find_damage(model) if placed is not None and placed.is_file() else None
        if damage is not None:  # a server unpacks it
            raise InputError(damage.kind, damage.what, damage.fix, str(model.folder))
        return found
    if not key or not model.has_own_environment:
        whose = f"{placed} is that of another model" if key else f"envpack did not make {placed.name}"
        what = f"{whose}, and only a server unpacks it"
        raise InputError("needs-server", what, "let it be served: `envpack verify`, `envpack dev`", str(model.folder))
    what = f"{placed.name} has another environment than its requirements and settings give now"
    fix = f"run `envpack build {model.folder.name}`, or let a server run it: envpack verify"
    raise InputError("requirements-changed", what, fix, str(model.folder))


def environment_for(source: Recipe | TakenOver, progress: Progress, store: SharedStore | None) -> Environment:
    if isinstance(source, TakenOver):
        from envpack.environment.from_prefix import environment_from_prefix  # few models have a prefix

        environment = environment_from_prefix(
            source.prefix,
            python=source.python,
            platform=source.platform,
            glibc=source.release.glibc,
            progress=progress,
            strip=source.strip,
        )
        if not numpy_version(environment):
            has_pip = any(source.prefix.glob("lib/python3*/site-packages/pip"))
            program = Installation("pip" if has_pip else "uv pip", str(source.prefix / "bin/python"))
            fix = f"install NumPy into it: {program.add_beside('numpy')}"
            raise numpy_missing("the environment", source.prefix, fix)
        return environment
    with ingredients_in_use(cache_root()):
        return locked_environment(source, progress, store)


def _fitting_stub(
    environment: EnvironmentFacts, source: Recipe | TakenOver, progress: Progress, store: SharedStore | None
) -> Path:
    """A stub for the environment that runs in the release's image; with zig if the system compiler's does not."""

    def find_headers(minor: str) -> Path:
        preference = source.python_preference if isinstance(source, Recipe) else "system"
        return interpreter_for(minor, preference=preference, headers=True, progress=progress).include

    if environment.path.is_dir() or not environment.python:  # an error says that libpython is missing
        target = target_from_prefix(environment.path, find_headers=find_headers)
    else:
        target = target_from_interpreter(environment.python, progress=progress)
    image = image_host(source.release)
    stub = stub_for(Cell(target, toolchain=source.toolchain), progress=progress, store=store)
    mismatches = find_mismatches(read_stub_requirements(stub.path), environment, source.release, image)
    # "auto" leaves this machine's compiler out for its glibc only from 2.38 on; the image of 23.04 has 2.31.
    if source.toolchain == "auto" and any(mismatch.kind == "glibc-too-old" for mismatch in mismatches):
        stub = stub_for(Cell(target, toolchain="zig"), progress=progress, store=store)
        mismatches = find_mismatches(read_stub_requirements(stub.path), environment, source.release, image)
    for mismatch in mismatches:
        raise StubError(mismatch.kind, mismatch.what, mismatch.fix)
    return stub.path
