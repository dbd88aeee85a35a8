"""Inspects a whole repository: folders, models, backend directories, and how they refer to each other."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.archive.manifest import read_metadata
from envpack.inspection.configuration import (
    declaration_findings,
    ensemble_findings,
    loading_findings,
    start_findings,
    starts_warm,
)
from envpack.inspection.files import (
    ACTIVATE,
    code_findings,
    environment_findings,
    folder_findings,
    mode_findings,
    module_findings,
    outside_findings,
    pointer_findings,
    template_findings,
    version_findings,
)
from envpack.inspection.imports import missing_requirements
from envpack.inspection.preflight import find_damage
from envpack.inspection.state import build_state, own_requirements
from envpack.inspection.stubs import backend_findings, fit_findings, stub_findings
from envpack.repository.config_choices import custom_configs
from envpack.repository.folders import find_folder, looks_like_model, requirements_file
from envpack.repository.model import UNADDRESSABLE, Model, examine_model
from envpack.repository.placement import ONE_AT_A_TIME, PYTHON_BACKEND, backends_folder, unpacking_backends
from envpack.repository.selection import cycle_error, examine_readable, find_cycles, model_name
from envpack.requirements.locked_packages import check_locked
from envpack.settings.project import FILE_NAME, Project
from envpack.settings.releases import Release
from envpack.support.bounded_reading import is_pointer
from envpack.support.errors import Finding, InputError, caution, fault, finding_of_error
from envpack.support.placed_files import CONFIG_NAME, STUB_NAME
from envpack.support.text import toml_key


@dataclass(frozen=True)
class RepositoryInspection:
    """The result of inspecting a repository."""

    repository: Path  # its folder
    release: Release  # the release that it was inspected for
    models: tuple[str, ...]  # names of the model folders
    warm: tuple[str, ...]  # names of those whose configuration names the warm start
    findings: tuple[Finding, ...]  # all findings, sorted by path
    built: bool = True  # whether every model that needs an execution environment has one

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return all(finding.severity != "error" for finding in self.findings)


def is_repository(folder: Path) -> bool:
    """Whether a folder contains models, and is not an execution environment."""
    if (folder / ACTIVATE).is_file() or not folder.is_dir():
        return False
    return (folder / FILE_NAME).is_file() or any(looks_like_model(f) for f in folder.iterdir() if f.is_dir())


def inspect_repository(project: Project, release: Release, names: Sequence[str] = ()) -> RepositoryInspection:
    """Find all problems of a repository.

    Args:
        project: the repository and its settings.
        release: the release to serve it.
        names: models to inspect; by default all, and the repository itself.

    Raises:
        InputError: a named model does not exist (``model-missing``), or the folder of the repository cannot be read
            (``unreadable``).
    """
    repository = project.repository
    backends = backends_folder(project)
    try:
        chosen = [repository / model_name(repository, name) for name in names] or [
            folder for folder in sorted(repository.iterdir()) if folder.is_dir() and looks_like_model(folder)
        ]
        findings = [] if names else [*folder_findings(repository), *_settings_findings(project)]
    except OSError as error:
        raise _unreadable(error, repository) from error
    models: list[Model] = []
    for folder in chosen:
        try:
            model, faults = examine_model(folder)
            if any(error.kind == "model-missing" for error in faults):
                raise faults[0]
            findings += _of_model(project, folder, model, faults, release)
            models += [model] if model else []
        except OSError as error:
            findings.append(finding_of_error(_unreadable(error, folder), folder))
    findings += [*_of_backends(models, backends, release), *_of_all(repository, models)]
    findings.sort(key=lambda finding: (str(finding.where), finding.severity, finding.kind))
    return RepositoryInspection(
        repository,
        release,
        tuple(folder.name for folder in chosen),
        tuple(model.folder.name for model in models if starts_warm(model)),
        tuple(findings),
        all(model.environment or not model.has_stub for model in models),
    )


def _settings_findings(project: Project) -> Iterator[Finding]:
    for name in project.absent:
        what = f"[models.{toml_key(name)}] is for a model that the repository does not have"
        yield caution("settings-unused", project.file, what, "correct the name, or remove the table")


def _unreadable(error: OSError, folder: Path) -> InputError:
    what, fix = f"cannot be read: {error.strerror}", "replace it by a file that can be read, or remove it"
    where = Path(os.fsdecode(error.filename or folder))
    if isinstance(error, PermissionError):  # also of a file elsewhere, such as that of a backend
        other = where if os.path.isdir(where) else where.parent  # noqa: PTH112 - is_dir() may raise, too
        fix = f"make it readable: `chmod -R u+rX {folder if where.is_relative_to(folder) else other}`"
    return InputError("unreadable", what, fix, str(where))


def _of_model(
    project: Project, folder: Path, model: Model | None, faults: Sequence[InputError], release: Release
) -> Iterator[Finding]:
    yield from (finding_of_error(error, folder) for error in faults)
    if odd := UNADDRESSABLE.search(folder.name):
        what = f"the model's name contains {odd.group()!r}, and requests by HTTP cannot name it"
        yield caution("bad-path", folder, what, "rename the folder: letters, digits, '_', '-' and '.'")
    yield from template_findings(folder)
    yield from mode_findings(folder)
    environment = model.environment if model and model.has_stub else None
    yield from pointer_findings(folder, environment)
    if model is None:
        return
    yield from outside_findings(model)
    states = list(_state_findings(project, model, release)) if model.has_stub else []
    found = list(_of_configuration(project, model, release))
    if any(state.kind == "not-built" for state in states):  # the stub of the release will not run it: a build adds one
        found = [finding for finding in found if finding.kind != "interface-broken"]
    yield from found
    elsewhere = [finding for finding in found if finding.where != folder / CONFIG_NAME]
    yield from _of_custom_configs(project, model, elsewhere, release)
    if not model.has_stub:
        return
    yield from states
    yield from _missing_requirements(project, model, release)
    yield from code_findings(model, _python_of(project, model, release))
    yield from module_findings(model).values()
    yield from start_findings(model)
    stub = folder / STUB_NAME
    if (stub.exists() or stub.is_symlink()) and not is_pointer(stub):
        yield from stub_findings(stub)


def _python_of(project: Project, model: Model, release: Release) -> str:
    """The Python that runs a model's code, or will after a build; ``""`` if that is open, as with requirements."""
    if model.environment is not None:
        return str(read_metadata(model.environment).get("minor", ""))
    said = project.of(model.folder.name)
    own_stub = model.backend != PYTHON_BACKEND or (model.folder / STUB_NAME).exists()
    if own_stub or (not said.python and (said.from_prefix or requirements_file(project, model.folder))):
        return ""
    return said.python or release.python


def _of_configuration(project: Project, model: Model, release: Release) -> Iterator[Finding]:
    backends = backends_folder(project)
    yield from declaration_findings(model)
    if misspelt := model.misspelt_backend(backends):
        yield finding_of_error(misspelt, model.folder)
    yield from loading_findings(model, release)
    if not model.has_stub:
        yield from version_findings(model)
        return
    environment = model.environment
    if environment and is_pointer(environment):
        return
    served_here = not project.of(model.folder.name).served_from
    unusable = list(environment_findings(model, release, served_here=served_here))
    yield from unusable
    if any(finding.severity == "error" for finding in unusable):
        return
    if damage := find_damage(model):
        yield dataclasses.replace(damage, where=model.folder)
    yield from fit_findings(model, release, backends)


def _of_custom_configs(
    project: Project, model: Model, known: Collection[Finding], release: Release
) -> Iterator[Finding]:
    """What is wrong with the custom configurations of a model, without findings that are known."""
    main = model.folder / CONFIG_NAME
    for custom in custom_configs(model.folder):
        yield from (finding_of_error(error, custom.file) for error in custom.faults)
        if custom.model is None:
            continue
        if custom.model.has_stub and model.environment and custom.model.environment is None:
            what = "it names no execution environment, and config.pbtxt does"
            fix = f"run `envpack build {model.folder.name}`, which edits it too"
            yield caution("not-built", custom.file, what, fix)
        for finding in _of_configuration(project, custom.model, release):
            if finding not in known:
                yield dataclasses.replace(finding, where=custom.file if finding.where == main else finding.where)


def _state_findings(project: Project, model: Model, release: Release) -> Iterator[Finding]:
    """Warns of a model that was never built, or whose requirements changed since; what a build refuses is an error."""
    try:
        state = build_state(project, model, release)
        if state.status == "unbuilt":
            check_locked(own_requirements(project, model, release, {}))
    except InputError as error:
        yield finding_of_error(error, model.folder)
        return
    if state.status == "unbuilt":
        yield caution("not-built", model.folder, state.reason, state.fix)
    elif state.status == "changed":
        yield caution("requirements-changed", model.folder, state.reason, state.fix)


def _missing_requirements(project: Project, model: Model, release: Release) -> Iterator[Finding]:
    """Warns of a model that a build refuses; a server may serve it as it is, if its own Python has the packages."""
    said = project.of(model.folder.name)
    if model.environment or said.from_prefix or requirements_file(project, model.folder):
        return
    python = _python_of(project, model, release)
    if python and (error := missing_requirements(model, python)):
        yield dataclasses.replace(finding_of_error(error, model.folder), severity="warning")


def _of_backends(models: Sequence[Model], backends: Path, release: Release) -> Iterator[Finding]:
    users = {model.backend: model for model in reversed(models) if model.backend.startswith(f"{PYTHON_BACKEND}_")}
    for name in sorted(users):
        yield from backend_findings(name, backends, users[name].folder / CONFIG_NAME, release)


def _of_all(repository: Path, models: Sequence[Model]) -> Iterator[Finding]:
    by_name = {model.name: model for model in models}
    for model in models:
        yield from _of_steps(repository, model, by_name)
        main = model.folder / CONFIG_NAME
        for custom in custom_configs(model.folder):
            for finding in _of_steps(repository, custom.model, by_name) if custom.model else ():
                yield dataclasses.replace(finding, where=custom.file if finding.where == main else finding.where)
    reached, waiting = by_name, list(models)
    for model in waiting:  # which grows
        beyond = _steps_of(model, reached)
        waiting += [step for name, step in beyond.items() if name not in reached]
        reached = beyond
    for cycle in find_cycles({name: model.steps for name, model in reached.items()}):
        yield finding_of_error(cycle_error(cycle, reached), reached[cycle[0]].folder)
    unpacking = unpacking_backends(model for model in models if _is_in_python(model))
    if len(unpacking) > 1:
        what = f"the backends {' and '.join(unpacking)} unpack archives at the same time, which mixes their files"
        fix = f"start the server with {ONE_AT_A_TIME}, or build with --format dir"
        yield caution("unpacked-at-once", repository, what, fix)


def _of_steps(repository: Path, model: Model, known: Mapping[str, Model]) -> Iterator[Finding]:
    """What is wrong with an ensemble and the models that it runs; nothing for another model."""
    for step in model.steps:
        if find_folder(repository, step) is None:
            what = f"the ensemble runs {step}, which is not in the repository"
            named = known.get(step)
            fix = f"rename the folder {named.folder.name} to {step}" if named else "add that model, or remove the step"
            yield fault("step-missing", model.folder / CONFIG_NAME, what, fix)
    if model.is_ensemble:
        yield from ensemble_findings(model, _steps_of(model, known))


def _steps_of(ensemble: Model, known: Mapping[str, Model]) -> dict[str, Model]:
    """The models that an ensemble runs, as far as they can be read; also if only the ensemble is inspected."""
    found = dict(known)
    for name in ensemble.steps:
        folder = None if name in found else find_folder(ensemble.folder.parent, name)
        model = examine_readable(folder)[0] if folder else None
        if model is not None:
            found[name] = model
    return found


def _is_in_python(model: Model) -> bool:
    return model.backend.startswith(PYTHON_BACKEND) and model.environment is not None
