"""From project and model to one build: a recipe and its placement, with every question answered."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from envpack.archive.manifest import is_made_by_envpack, read_metadata
from envpack.archive.selection import Selection
from envpack.conda.resolve import spec_channels
from envpack.conda.settings import CondaSettings, read_conda_settings
from envpack.inspection.files import environment_findings, environment_path_findings
from envpack.inspection.imports import NUMPY_ALONE, missing_requirements
from envpack.inspection.preflight import find_unsafe_archive
from envpack.inspection.stubs import fit_findings
from envpack.lock.lockfile import read_lock
from envpack.lock.resolve import LOCAL_CHANNEL
from envpack.repository.folders import requirements_file
from envpack.repository.imports import used_too_early
from envpack.repository.model import Model
from envpack.repository.placement import (
    PYTHON_BACKEND,
    Backend,
    backend_for,
    backends_folder,
    linked_path_fault,
    python_of_backend,
)
from envpack.requirements.format import find_requirements, read_requirements
from envpack.requirements.model import Requirements
from envpack.requirements.target import Target
from envpack.settings.project import Project
from envpack.settings.pythons import check_minor
from envpack.settings.releases import Release
from envpack.settings.table import ArchiveFormat, Settings
from envpack.support.errors import UsageError, refuse
from envpack.support.folders import real_path
from envpack.support.placed_files import LOCK_NAME, STUB_NAME
from envpack.support.platforms import host_platform
from envpack.workflow.python_choice import ChosenPython, choose_python, pinned_python, usable_pythons
from envpack.workflow.recipe import Recipe, TakenOver


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the environment and the stub of one model go, and how."""

    model: Model
    said: Settings  # of the model
    release: Release
    release_named: bool  # by the user; otherwise it is only the default
    served_from: str  # path of the model repository on the server
    archive_format: ArchiveFormat
    selection: Selection
    backends: Path | None  # the stub's folder is there, if it does not go beside the model

    def environment_for(self, minor: str) -> Path:
        """Where the environment with a Python goes: a folder or an archive in the model's."""
        suffix = "" if self.archive_format == "dir" else f".{self.archive_format}"
        return self.model.folder / f"python{minor}{suffix}"

    def served_as(self, minor: str) -> str:
        return f"{self.served_from.rstrip('/')}/{self.model.folder.name}/{self.environment_for(minor).name}"

    def backend(self, minor: str) -> Backend | None:
        """The backend for a Python to which the stub goes; None if that goes beside the model."""
        return backend_for(minor, self.backends) if self.backends else None

    @property
    def starts_warm(self) -> bool:
        """Whether the model's configuration names the warm start after the build."""
        return (self.said.start or self.model.start) == "warm"

    @property
    def needs_stub(self) -> bool:
        """Whether the model gets a stub whatever its environment contains."""
        wanted = self.backends is not None or self.starts_warm or (self.model.folder / STUB_NAME).exists()
        wanted = wanted or bool(used_too_early(self.model.folder, self.model.code_file))
        return self.said.stub == "always" or (self.said.stub == "auto" and wanted)


@dataclass(frozen=True, kw_only=True)
class Build:
    """A build of one model with every question answered."""

    source: Recipe | TakenOver
    placement: Placement
    python: ChosenPython | None  # None for an environment that is taken over


def build_request(project: Project, model: Model) -> Build:
    """Resolve project and model into one build. Nothing is written."""
    said = project.of(model.folder.name)
    if error := model.misspelt_backend(backends_folder(project)):
        raise error
    placement = Placement(
        model=model,
        said=said,
        release=project.release,
        release_named=bool(said.triton or said.abi),
        served_from=said.served_from or str(project.repository),
        archive_format=said.format or placed_environment(model)[1],
        selection=Selection(said.exclude, said.include),
        backends=_backends(project, model),
    )
    source, python = _source(project, model)
    _refuse_unfit(placement, served_here=not said.served_from)
    stub = "always" if placement.needs_stub else said.stub
    return Build(source=dataclasses.replace(source, stub=stub), placement=placement, python=python)


_OF_THE_STUB = {"python-mismatch", "numpy-unsupported", "interface-broken"}


def kept_environment(project: Project, model: Model) -> Path | None:
    """The environment of a model without requirements, if it is another model's, or envpack did not make it.

    One of its own would have NumPy alone. None if it gets that all the same, as with ``--force``.
    """
    said, named = project.of(model.folder.name), model.environment
    if named is None or said.force or said.from_prefix:
        return None
    if not os.path.exists(named):  # noqa: PTH110 - also of another user's folder
        return None
    if said.requirements or find_requirements(model.folder) or os.path.lexists(model.folder / LOCK_NAME):
        return None
    return None if model.has_own_environment and is_made_by_envpack(named) else named


def without_effect(project: Project, model: Model) -> tuple[str, ...]:
    """A warning of what the caller says and a model that keeps its environment does not get."""
    words = project.said.only("python", "format", "start", "layout").words("build")
    fix = f"write {model.folder / 'requirements.txt'}, and it gets an environment of its own"
    return (f"{model.name}: it keeps its environment, so that {' '.join(words)} has no effect: {fix}",) if words else ()


def refuse_unusable(project: Project, model: Model) -> None:
    """Refuse to keep an environment that no server can use."""
    if model.environment and model.environment.is_dir():
        served_here = not project.of(model.folder.name).served_from
        found = [*environment_findings(model, project.release, served_here=served_here)]
    else:
        unsafe = find_unsafe_archive(model, project.release)
        found = [*environment_path_findings(model), *([unsafe] if unsafe else [])]
    refuse(finding for finding in found if finding.severity == "error")


def needs_stub(project: Project, model: Model) -> bool:
    """Whether a model that keeps its environment gets a stub of ours."""
    said = project.of(model.folder.name)
    if said.stub != "auto" or model.backend != PYTHON_BACKEND:
        return said.stub == "always"
    return any(
        finding.kind in _OF_THE_STUB for finding in fit_findings(model, project.release, backends_folder(project))
    )


def is_resolved(project: Project, model: Model) -> bool:
    taken_over = project.of(model.folder.name).from_prefix is not None
    return not (model.is_ensemble or taken_over or kept_environment(project, model))


def _source(project: Project, model: Model) -> tuple[Recipe | TakenOver, ChosenPython | None]:
    said = project.of(model.folder.name)
    if said.from_prefix is None:
        return lock_request(project, model)
    if said.python:
        check_minor(said.python, where="" if project.said.python else str(project.file))
    taken = TakenOver(
        prefix=said.from_prefix,
        python=said.python,
        platform=said.platform,
        triton=project.release.name,
        abi=said.abi,
        strip=said.strip,
        toolchain=said.toolchain,
    )
    return taken, None


def lock_request(project: Project, model: Model) -> tuple[Recipe, ChosenPython]:
    """What the lock of one model depends on, and why it has that Python. Nothing is resolved or written."""
    said, release, conda = project.of(model.folder.name), project.release, read_conda_settings()
    lock_file = model.folder / LOCK_NAME

    def choose(requirements: Requirements) -> ChosenPython:
        return _chosen_python(requirements, project, model, conda)

    requirements = _requirements(project, model, choose)
    platform = said.platform or requirements.platform or host_platform()
    python = choose(requirements)
    lock = read_lock(lock_file)
    recipe = Recipe(
        name=model.folder.name,
        requirements=requirements,
        target=Target(platform, python.minor, release.glibc, release.cuda),
        channels=_channels(said, requirements, conda),
        sources=said.allow_source,
        python_preference=said.python_preference,
        lock=lock.text if lock else "",
        lock_file=lock_file,
        triton=release.name,
        abi=said.abi,
        strip=said.strip,
        toolchain=said.toolchain,
    )
    return recipe, python


def _requirements(project: Project, model: Model, choose: Callable[[Requirements], ChosenPython]) -> Requirements:
    """What the model requires; without any requirements NumPy, if its code needs no more."""
    file = requirements_file(project, model.folder)
    if not file:
        if missing := missing_requirements(model, choose(NUMPY_ALONE).minor):
            raise missing
        return NUMPY_ALONE
    return read_requirements(
        file,
        platform=project.of(model.folder.name).platform or host_platform(),
        python=lambda requirements: choose(requirements).minor,
        glibc=project.release.glibc,
    )


def _channels(said: Settings, requirements: Requirements, settings: CondaSettings) -> tuple[str, ...]:
    """The first channels that somebody names, and those that match specs name beside them, as conda does."""
    named = said.channels or requirements.channels or settings.channels
    return tuple(dict.fromkeys((*named, *spec_channels(requirements.conda)))) or (LOCAL_CHANNEL,)


def _chosen_python(requirements: Requirements, project: Project, model: Model, settings: CondaSettings) -> ChosenPython:
    """The Python version of a model: explicit settings first, then what the model has."""
    said, release = project.of(model.folder.name), project.release

    def had() -> Iterator[tuple[str, str]]:
        if lock := read_lock(model.folder / LOCK_NAME):
            yield lock.target.python, LOCK_NAME
        if python := placed_environment(model)[0]:
            yield python, "the environment that the model has"

    def here(requirements: Requirements) -> set[str]:
        local = LOCAL_CHANNEL in _channels(said, requirements, settings)
        return usable_pythons(said.python_preference, release.glibc) if local else set()

    named = (said.python, *(("--python", "") if project.said.python else (project.file.name, str(project.file))))
    if not said.python and not requirements.python:
        named = pinned_python(requirements.source.parent if requirements.source else model.folder)
    return choose_python(requirements, said=named, had=had, release=release, here=here)


def _backends(project: Project, model: Model) -> Path | None:
    said = project.of(model.folder.name)
    layout = said.layout or ("backend" if python_of_backend(model.backend) else "model")
    if layout == "backend" and said.stub == "never":
        what = "a backend for one Python contains a stub, and --stub never excludes it"
        raise UsageError("layout-limits", what, "remove --stub never, or use --set layout=model")
    return backends_folder(project) if layout == "backend" else None


def _refuse_unfit(request: Placement, *, served_here: bool) -> None:
    """Refuse settings that do not go together, or with the release or the place of the model."""
    folder, is_folder = request.model.folder, request.archive_format == "dir"
    if is_folder and not request.release.takes_folders:
        what = f"Triton {request.release.name} does not accept a folder as an execution environment"
        raise UsageError("folder-unsupported", what, "build an archive: --format tar.gz")
    if is_folder and served_here and (linked := linked_path_fault(folder, str(real_path(folder)))):
        raise linked
    if request.said.packer != "envpack" and (is_folder or request.selection != Selection()):
        fix = f"add --format tar.gz and leave out exclude and include, or leave out packer={request.said.packer}"
        raise UsageError("packer-limits", f"{request.said.packer} makes archives only, of all files", fix)
    has_stub = request.backends is not None or (folder / STUB_NAME).exists()
    if request.said.start == "warm" and request.said.stub == "never" and not has_stub:
        what = "only envpack's stub starts models warm, and --stub never excludes it"
        raise UsageError("start-limits", what, "remove --stub never, or use --start cold")


_SUFFIXES = (".tar.gz", ".tar")


def placed_environment(model: Model) -> tuple[str, ArchiveFormat]:
    """Python and form of the environment that config.pbtxt names; ``("", "dir")`` if envpack did not make it."""
    path = None if model.is_ensemble else model.environment
    python = str(read_metadata(path).get("minor", "")) if path else ""  # which only envpack writes
    if path is None or not python:
        return "", "dir"
    archive_format = next((suffix.removeprefix(".") for suffix in _SUFFIXES if path.name.endswith(suffix)), "dir")
    return python, cast("ArchiveFormat", archive_format)
