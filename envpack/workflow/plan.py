"""What a build would change, and why; nothing is resolved, installed, compiled or written."""

from __future__ import annotations

import contextlib
import dataclasses
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import envpack
from envpack.archive.folder import changed_files, is_folder_of_mode
from envpack.archive.manifest import is_recorded_archive, read_metadata
from envpack.archive.tarball import is_archive_of_mode
from envpack.conda.choice import reason_to_fetch
from envpack.environment.build import find_environment
from envpack.environment.prefix_files import detect_prefix
from envpack.environment.store import Environment
from envpack.inspection.imports import requirement_warnings
from envpack.inspection.state import BuildState, build_state
from envpack.lock.lockfile import Lock
from envpack.lock.resolve import LOCAL_CHANNEL, check_channels, check_requirements
from envpack.repository.config_choices import python_configs
from envpack.repository.imports import used_too_early
from envpack.repository.model import Model, open_model
from envpack.repository.placement import Backend, check_server_backend, in_model_folder, may_run, names_release
from envpack.settings.project import Project
from envpack.settings.table import ToolchainName
from envpack.stub.build import find_stub
from envpack.stub.inspection import inspect_stub
from envpack.stub.recipe import Cell
from envpack.stub.target import target_from_prefix
from envpack.support.bounded_reading import sha256_of
from envpack.support.errors import EnvironmentBuildError, StubError
from envpack.support.placed_files import CONFIG_NAME, RELEASE_FILE, STUB_NAME
from envpack.support.platforms import platform_of_machine
from envpack.support.progress import SILENT
from envpack.support.text import counted, printable
from envpack.workflow.lock import refuse_stale, refuse_without_numpy, version_change, versions
from envpack.workflow.placement import (
    backend_name,
    check_compiling_first,
    foreign_paths,
    refuse_foreign,
    release_cannot_serve,
    unfit_stub,
)
from envpack.workflow.project import NO_STORE
from envpack.workflow.python_choice import with_another_python
from envpack.workflow.recipe import Recipe, TakenOver
from envpack.workflow.requests import (
    Build,
    Placement,
    build_request,
    kept_environment,
    needs_stub,
    refuse_unusable,
    without_effect,
)

_MOST_NAMED = 3  # packages in one reason


@dataclass(frozen=True)
class PlannedChange:
    """One thing that a build would do."""

    action: str  # "install 12 packages"
    reason: str  # "numpy 1.26.3 → 1.26.4"


Changes = Iterator[PlannedChange]


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """What a build of one model would change."""

    name: str
    python: str = ""  # that it would have, "" if its environment is taken over from a folder, and for an ensemble
    python_source: str = ""  # where that version comes from
    release: str = ""  # Triton release to build for
    changes: tuple[PlannedChange, ...] = ()  # in order; empty if everything is up to date
    warnings: tuple[str, ...] = ()  # what a build will warn of, as far as it is known before the packages are


def plan_model(project: Project, name: str) -> ModelPlan:
    model = open_model(project.repository / name)
    if model.is_ensemble:
        return ModelPlan(name=name)
    if kept_environment(project, model):
        refuse_unusable(project, model)
        stub = PlannedChange("place a stub", "that of the release cannot serve its environment")
        changes = (stub,) if needs_stub(project, model) else ()
        return ModelPlan(name=name, changes=changes, warnings=without_effect(project, model))
    request = build_request(project, model)
    try:
        return _plan(project, request)
    except EnvironmentBuildError as error:
        another = with_another_python(project, request.source, request.python, error, SILENT)
    plan = _plan(project, build_request(another, model))
    return dataclasses.replace(plan, python_source="this machine, which lacks that of the release")


def _plan(project: Project, request: Build) -> ModelPlan:
    placement, source, release = request.placement, request.source, request.placement.release
    name = placement.model.folder.name
    if isinstance(source, TakenOver):
        detect_prefix(source.prefix)  # raises if it is none that can be taken over
        change = PlannedChange(f"take over {source.prefix}, if it has changed", "files of an environment are compared")
        return ModelPlan(name=name, release=release.name, changes=(change,))
    said = project.of()
    shared = said.store not in ("", NO_STORE) or bool(said.on)
    check_compiling_first(placement, source, shared=shared)
    if source.locked is None:
        check_requirements(source.requirements, source.target, source.sources)  # before a Python is looked for
    lock = source.locked or source.options().remembered(source.requirements, source.target)
    if lock is None and not shared:  # others may have locked for that platform
        check_channels(source.channels, source.target)
    packages = versions(lock) if lock else None
    return ModelPlan(
        name=name,
        python=source.target.python,
        python_source=request.python.source if request.python else "",
        release=release.name,
        changes=tuple(_changes(placement, source, lock, build_state(project, placement.model, release))),
        warnings=tuple(requirement_warnings(placement.model, source.requirements, source.target.python, packages)),
    )


def _changes(request: Placement, source: Recipe, lock: Lock | None, state: BuildState) -> Changes:
    for path in foreign_paths(request, source.target.python):
        if not request.said.force:
            refuse_foreign([path], force=False)
        yield PlannedChange(f"rename {path.name}", "envpack did not make it")
    if source.locked is not None:
        refuse_stale(source.locked, source)
    if lock:
        refuse_without_numpy(lock, source)
    environment = find_environment(lock, source.options().cache, strip=source.strip) if lock else None
    if lock is None and LOCAL_CHANNEL in source.channels:
        why = reason_to_fetch(
            source.target.python, source.python_preference, source.target.glibc, source.requirements.pythons
        )
        if why:
            yield PlannedChange(f"fetch Python {source.target.python}", why)
    if lock is None:
        yield PlannedChange("resolve the packages", "these requirements were not resolved on this machine before")
    elif environment is None:
        yield PlannedChange(
            f"install {counted(len(lock.conda) + len(lock.pip), 'package')}", "the store has no such environment"
        )
    yield from _placement(request, source, lock, environment, state)
    yield from _stub(request, source, lock, environment)


def _placement(
    request: Placement, source: Recipe, lock: Lock | None, environment: Environment | None, state: BuildState
) -> Changes:
    model = request.model
    path = request.environment_for(source.target.python)
    has = model.environment
    metadata = read_metadata(has) if has else {}
    if not metadata:
        reason = "it has none" if has is None else f"{has} was not made by envpack, or is missing"
        yield PlannedChange(f"place an environment as {path.name}", reason)
    elif has != path:
        other = Path(has or "")
        reason = f"it has {other.name if other.parent == path.parent else other}"
        yield PlannedChange(f"place an environment as {path.name}", reason)
    else:
        changed = [state.reason] if state.status == "changed" else []
        reasons = [*changed, *_differences(metadata, request, lock), *_files(path, metadata, request, environment)]
        if not reasons and environment and metadata.get("key") != environment.key:
            reasons = ["its packages have other builds, --set strip differs, or another envpack made it"]
        if reasons:
            yield PlannedChange(f"replace {path.name}", "; ".join(reasons))
    named = backend_name(model, request.backend(source.target.python))
    custom = {str(file.relative_to(model.folder)): found.model for file, found in python_configs(model.folder).items()}
    for name, configured in {CONFIG_NAME: model, **custom}.items():
        edits = list(_edits(configured, path, request, named)) if configured else []
        if edits:
            yield PlannedChange(f"edit {name}", "; ".join(edits))


def _edits(model: Model, environment: Path, request: Placement, backend: str) -> Iterator[str]:
    if model.environment != environment:
        yield f"EXECUTION_ENV_PATH becomes {in_model_folder(environment.name)}"
    if backend not in ("", model.config.backend):
        yield f"backend becomes {backend}"
    if request.said.start == "warm" and model.start != "warm":
        yield "ENVPACK_START becomes warm"
    if request.said.start == "cold" and model.start:
        yield "ENVPACK_START is removed"


def _differences(metadata: Mapping[str, Any], request: Placement, lock: Lock | None) -> Iterator[str]:
    if metadata.get("selection", {}).get("digest") not in (None, request.selection.digest):
        yield "other files are excluded"
    if lock is None:
        return
    has = {package["name"]: package["version"] for package in metadata.get("packages", ())}
    wanted = versions(lock)
    # Interpreters' packages may hold others; only what the lock names is compared.
    different = [name for name in sorted(wanted) if has.get(name) != wanted[name]]
    separate = {package["name"] for package in metadata.get("packages", ()) if package.get("url")}
    different += sorted(separate - wanted.keys())  # which came by themselves, and not within a conda package
    named = [version_change(name, has, wanted) for name in different[:_MOST_NAMED]]
    if len(different) > _MOST_NAMED:
        named.append(f"and {len(different) - _MOST_NAMED} more")
    if named:
        yield ", ".join(named)


def _files(
    path: Path, metadata: Mapping[str, Any], request: Placement, environment: Environment | None
) -> Iterator[str]:
    """Why the files of a placed environment are not as a build would place them."""
    mode = request.said.link_mode
    if request.archive_format != "dir":
        if not (path.is_file() and is_recorded_archive(path)):
            yield f"{path.name} was changed or removed"
        if environment and not is_archive_of_mode(mode, path, environment, request.archive_format, request.selection):
            yield f"--set link_mode={mode}"
        return
    if changed := changed_files(path, str(metadata.get("key", ""))):
        yield f"{printable(changed[0])} was changed"
    if environment and not is_folder_of_mode(mode, path, environment):
        yield f"--set link_mode={mode}"
    place = metadata.get("selection", {}).get("final_prefix")
    if environment and environment.placeholders and place and place != request.served_as(environment.minor):
        yield f"its files are for {place} on the server, not {request.served_as(environment.minor)}"


def _stub(request: Placement, source: Recipe, lock: Lock | None, environment: Environment | None) -> Changes:
    folder, backend = request.model.folder, request.backend(source.target.python)
    has_stub = (folder / STUB_NAME).is_file()
    if backend is not None:
        yield from _parts(backend, request, source, environment)
        if has_stub or (folder / RELEASE_FILE).is_file():
            yield PlannedChange("remove the stub", f"the server would prefer it to that of {backend.name}")
        folder = backend.folder
    elif request.said.stub == "never":
        if unfit := unfit_stub(request, source.target.python):
            yield PlannedChange("remove the stub", unfit)
    elif has_stub:
        if fault := _fault(folder / STUB_NAME, source, environment):
            yield PlannedChange("replace the stub", fault)
    else:
        yield from _new_stub(request, source, lock)
    yield from _release_file(folder, request)


def _release_file(folder: Path, request: Placement) -> Changes:
    if not request.release_named:
        if (folder / RELEASE_FILE).is_file():
            yield PlannedChange(f"remove {RELEASE_FILE}", "no release is named")
    elif request.said.stub != "never" and (folder / STUB_NAME).is_file() and not names_release(folder, request.release):
        yield PlannedChange(f"write {RELEASE_FILE}", f"for Triton {request.release.name}")


def _parts(backend: Backend, request: Placement, source: Recipe, environment: Environment | None) -> Changes:
    check_server_backend(request.said.copy_library)
    action = f"place the backend {backend.name}"
    if not backend.folder.is_dir():
        yield PlannedChange(action, f"it is not in {backend.folder.parent}")
        return
    faults = [f"{name} is missing or differs" for name in backend.outdated_parts(request.said.copy_library)]
    if fault := _fault(backend.stub, source, environment):
        faults.append(f"{STUB_NAME}: {fault}")
    if faults:
        yield PlannedChange(action, "; ".join(faults))


def _fault(stub: Path, source: Recipe, environment: Environment | None) -> str:
    """Why a stub is not the one that a build would place; without the environment, as far as its facts show."""
    if not stub.exists():
        return "it is missing"
    try:
        has, mode = inspect_stub(stub), stat.S_IMODE(stub.stat().st_mode)
    except StubError as error:
        return error.message
    if not may_run(mode):
        return f"its mode is {mode:04o}"
    if (has.python, platform_of_machine(has.machine)) != (source.target.python, source.target.platform):
        return f"it is for Python {has.python} on {has.machine}"
    if has.version != envpack.__version__:
        return f"it is of envpack {has.version}"
    return _difference(stub, source, environment)


def _difference(placed: Path, source: Recipe, environment: Environment | None) -> str:
    """Why a build compiles another stub for an environment in the cache; zig's may replace that for a newer glibc."""
    toolchains: tuple[ToolchainName, ...] = ("auto", "zig") if source.toolchain == "auto" else (source.toolchain,)
    with contextlib.suppress(StubError):  # no headers are here, as for other machines
        target = target_from_prefix(environment.prefix) if environment else None
        cells = [Cell(target, toolchain=one) for one in toolchains] if target else []
        found = {sha256_of(stub.path) for stub in map(find_stub, cells) if stub}
        if target and sha256_of(placed) not in found:
            return "the cache has no such stub: its sources, Python or compiler differ"
    return ""


def _new_stub(request: Placement, source: Recipe, lock: Lock | None) -> Changes:
    numpy = next((package.version for package in lock.pip if package.name == "numpy"), "") if lock else ""
    if request.said.stub == "always":
        yield PlannedChange("place a stub", "--stub always")
    elif release_cannot_serve(source.target.python, numpy, request.release):
        cannot = f"cannot serve NumPy {numpy}"
        if source.target.python != request.release.python:
            cannot = f"embeds Python {request.release.python}"
        own = f"the stub of Triton {request.release.name} {cannot}"
        yield PlannedChange(f"place a stub for Python {source.target.python}", own)
    elif request.starts_warm:
        yield PlannedChange("place a stub", "only envpack's stub starts models warm")
    elif early := used_too_early(request.model.folder, request.model.code_file):
        yield PlannedChange(
            "place a stub", f"the stub of Triton {request.release.name} adds pb_utils.{early[0]} too late"
        )
