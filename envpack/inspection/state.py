"""Whether a model was built, and whether its requirements changed since.

A build records a digest of the requirements in the metadata of the placed execution environment: the manifest in a
folder, the file beside an archive. Models with different requirements may share an environment, so the digest is not
part of the environment in the store. The digest excludes channels, because they depend on the settings of the user who
inspects the repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from envpack.archive.manifest import read_metadata, record_in_metadata
from envpack.lock.lockfile import digest_requirements
from envpack.repository.folders import requirements_file
from envpack.repository.model import Model
from envpack.requirements.format import read_requirements
from envpack.requirements.model import Requirements
from envpack.requirements.target import allows_minor
from envpack.settings.project import Project
from envpack.settings.pythons import SUPPORTED
from envpack.settings.releases import Release
from envpack.support.errors import InputError
from envpack.support.placed_files import LOCK_NAME
from envpack.support.platforms import host_platform

_KEY = "requirements"  # in the metadata of a placed environment


@dataclass(frozen=True)
class BuildState:
    """How a model's execution environment relates to its requirements."""

    # ``"current"``: built from the requirements that the model has now; ``"changed"``: the requirements changed since
    # the build; ``"unbuilt"``: the model has requirements and no execution environment; ``"unknown"``: nothing is
    # recorded, as for environments that envpack did not place, models without requirements and ensembles; or what is
    # recorded is for another model, whose environment this one uses.
    status: Literal["current", "changed", "unbuilt", "unknown"]
    reason: str = ""  # one sentence without a full stop; ``""`` unless the status is ``"changed"`` or ``"unbuilt"``
    fix: str = ""  # the commands that build the model; ``""`` likewise


def record_requirements(placed: Path, requirements: Requirements | None) -> None:
    record_in_metadata(placed, _KEY, digest_requirements(requirements, ()) if requirements else "")


def own_requirements(project: Project, model: Model, release: Release, built_for: Mapping[str, Any]) -> Requirements:
    """The requirements of a model as a build reads them; ``built_for`` is the metadata of the environment it has."""
    settings = project.of(model.folder.name)
    file = requirements_file(project, model.folder)
    if not file:
        return Requirements(pip=("numpy",))  # what a build installs for a model without requirements

    def chosen(requirements: Requirements) -> str:
        minors = (release.python, *SUPPORTED)  # the oldest: a lock has wheels for it, and none for what came later
        return requirements.python or next((one for one in minors if allows_minor(requirements.pythons, one)), "")

    return read_requirements(
        file,
        platform=str(built_for.get("platform") or settings.platform or host_platform()),
        python=settings.python or str(built_for.get("minor", "")) or chosen,
        glibc=release.glibc,
    )


def build_state(project: Project, model: Model, release: Release) -> BuildState:
    if model.is_ensemble or project.of(model.folder.name).from_prefix:
        return BuildState("unknown")
    file = requirements_file(project, model.folder)
    environment = model.environment
    build = f"run `envpack build {model.folder.name}`"
    if environment is None:
        if file is None:
            return BuildState("unknown")
        return BuildState("unbuilt", f"it has {file.name}, but config.pbtxt names no execution environment", build)
    metadata = read_metadata(environment)
    recorded = metadata.get(_KEY)
    if not recorded or not model.has_own_environment:
        return BuildState("unknown")
    requirements = own_requirements(project, model, release, metadata)
    if digest_requirements(requirements, ()) == recorded:
        return BuildState("current")
    name = file.name if file else "the model's requirements file"
    reason = f"{name} changed since {environment.name} was built" if file else f"{name} was removed since the build"
    # A build refuses a lockfile that was made for other requirements.
    locked = (model.folder / LOCK_NAME).is_file()
    lock_and_build = f"run `envpack lock {model.folder.name}`, then `envpack build {model.folder.name}`"
    return BuildState("changed", reason, lock_and_build if locked else build)


def known_state(project: Project, model: Model, release: Release) -> BuildState:
    """`build_state`; unknown if nothing builds the model or its requirements cannot be read, as `inspect` reports."""
    if not model.has_stub:
        return BuildState("unknown")
    try:
        return build_state(project, model, release)
    except InputError:
        return BuildState("unknown")
