"""From a model to its lock: what it requires, for which Python and server, from which channels, chosen exactly."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from envpack.conda import CondaSettings, read_conda_settings
from envpack.environment import Environment, environment_of, remembered_lock
from envpack.lock import (
    LOCAL_CHANNEL,
    LOCK_NAME,
    Lock,
    LockOptions,
    digest_requirements,
    lock_requirements,
    read_lock,
    write_lock,
)
from envpack.project import Project
from envpack.pythons import check_minor
from envpack.releases import DEFAULT_RELEASE, Release, find_release
from envpack.repository import Model, open_model
from envpack.requirements import Requirements, Target, find_requirements, host_platform, read_requirements
from envpack.support.cache_locations import cache_root
from envpack.support.elf import version_key
from envpack.support.errors import InputError, UsageError
from envpack.support.progress import NoProgress, Progress
from envpack.support.storage_errors import storage_errors


@dataclass(frozen=True)
class Choice:
    """What decides which packages are chosen, beside the requirements.

    Attributes:
        python: Python minor version, ``""`` for what the project or the requirements say.
        triton: Triton release, ``""`` for what the project says.
        abi: name of the wire that the release speaks, for one that envpack does not know; ``""`` for what it knows.
        channels: conda channels in order of preference; none for those of the project, of the requirements, of the
            user's settings for conda, or ``"local"``, which is this machine's own interpreters.
        platform: ``"linux-64"`` or ``"linux-aarch64"``, ``""`` for what the project says or this machine is.
        sources: pip packages that may be built from source; ``":all:"`` for any.
        engine: who chooses conda packages: ``"rattler"`` is embedded, ``"conda"``, ``"mamba"`` and ``"micromamba"`` are
            programs of this machine.
    """

    python: str = ""
    triton: str = ""
    abi: str = ""
    channels: tuple[str, ...] = ()
    platform: str = ""
    sources: tuple[str, ...] = ()
    engine: str = "rattler"


@dataclass(frozen=True)
class LockedModel:
    """A model whose packages are chosen.

    Attributes:
        name: the model.
        file: its lockfile; ``None`` for an ensemble, and for a model whose environment is taken from a folder.
        packages: how many packages it names.
        changes: what became of packages since the lockfile before, as ``"numpy 1.26.3 → 1.26.4"``.
        changed: whether the lockfile was written.
    """

    name: str
    file: Path | None
    packages: int
    changes: tuple[str, ...]
    changed: bool


@dataclass(frozen=True)
class _Question:
    """All that a lock depends on, for one model."""

    requirements: Requirements
    target: Target
    options: LockOptions
    file: Path


def release_for(project: Project, choice: Choice) -> Release:
    """The release to build for: the first that the choice and the project name, else the default.

    Raises:
        UsageError: there is no such release, or no such wire.
    """
    where = "" if choice.triton else str(project.file)
    return find_release(choice.triton or project.triton or DEFAULT_RELEASE, abi=choice.abi or None, where=where)


def lock_model(
    project: Project,
    name: str,
    choice: Choice | None = None,
    *,
    update: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> LockedModel:
    """Choose a model's packages and write them to ``envpack.lock`` in its folder.

    What an earlier lockfile chose stays as it is where it still fits.

    Args:
        project: the model repository.
        name: of the model.
        choice: what decides, beside the requirements.
        update: packages that are chosen afresh all the same.
        progress: told of each step.

    Raises:
        InputError: the model, its requirements or its lockfile are wrong.
        UsageError: no Python version is given anywhere, or an unknown one; ``update`` names what is not locked.
        EnvironmentBuildError: no choice fulfils them all, or somebody who was asked did not answer.
    """
    model = open_model(project.repository / name)
    if model.is_ensemble or project.settings(model.folder.name).from_prefix:
        return LockedModel(model.name, None, 0, (), changed=False)
    question = _question(project, model, choice or Choice())
    before = read_lock(question.file)
    fits = before is not None and before.target.python == question.target.python
    options = dataclasses.replace(question.options, previous=before if fits else None, update=update)
    with storage_errors(question.file):
        lock = lock_requirements(question.requirements, question.target, options, progress or NoProgress())
        changed = write_lock(lock, question.file)
    return LockedModel(model.name, question.file, len(lock.conda) + len(lock.pip), _changes(before, lock), changed)


def model_environment(
    project: Project, model: Model, choice: Choice, progress: Progress, *, strip: bool = False
) -> tuple[Environment, Requirements]:
    """The environment of a model: of its lockfile if it has one, else of what its requirements give.

    Raises:
        InputError: the requirements or the lockfile are wrong, or the lockfile answers other requirements (kind
            ``stale-lock``).
        UsageError: no Python version is given anywhere, or an unknown one.
        EnvironmentBuildError: it cannot be solved, installed or started.
    """
    question = _question(project, model, choice)
    lock = read_lock(question.file)
    if lock is None:
        lock = remembered_lock(question.requirements, question.target, question.options, progress)
    else:
        _refuse_stale(lock, question)
    environment = environment_of(
        lock,
        cache=question.options.cache,
        progress=progress,
        settings=question.options.settings,
        credentials=question.options.credentials,
        indexes=question.requirements.pip_options,
        strip=strip,
    )
    return environment, question.requirements


def taken_environment(
    project: Project, model: Model, prefix: Path, choice: Choice, progress: Progress, *, strip: bool = False
) -> Environment:
    """The environment of a model that is taken from an existing one, whatever its requirements are.

    Raises:
        InputError: the folder is no environment, or not one for this model.
        UsageError: an unknown Python version is given, or is that of the folder.
        EnvironmentBuildError: it cannot be copied, or does not start.
    """
    from envpack.environment import environment_from_prefix

    release = release_for(project, choice)
    python = choice.python or project.settings(model.folder.name).python
    if python:
        check_minor(python, where="" if choice.python else str(project.file))
    return environment_from_prefix(
        prefix,
        python=python,
        platform=choice.platform or project.platform,
        glibc=release.glibc,
        progress=progress,
        strip=strip,
    )


def _question(project: Project, model: Model, choice: Choice) -> _Question:
    release = release_for(project, choice)
    settings = read_conda_settings()
    requirements = _requirements(project, model, release, choice)
    platform = choice.platform or project.platform or requirements.platform or host_platform()
    target = Target(platform, _python(project, model, requirements, choice), release.glibc, release.cuda)
    options = LockOptions(
        _channels(project, requirements, settings, choice),
        settings,
        cache_root().absolute(),
        sources=choice.sources,
        engine=choice.engine,
    )
    return _Question(requirements, target, options, model.folder / LOCK_NAME)


def _requirements(project: Project, model: Model, release: Release, choice: Choice) -> Requirements:
    """What the model asks for; a model that asks for nothing gets NumPy, without which no model can run."""
    settings = project.settings(model.folder.name)
    file = settings.requirements or find_requirements(model.folder)
    if not file:
        return Requirements(pip=("numpy",))
    if settings.python:
        check_minor(settings.python, where=str(project.file))
    if choice.python:
        check_minor(choice.python)
    return read_requirements(
        file,
        platform=choice.platform or project.platform or host_platform(),
        python=choice.python or settings.python,
        glibc=release.glibc,
    )


def _channels(project: Project, requirements: Requirements, settings: CondaSettings, choice: Choice) -> tuple[str, ...]:
    said = (choice.channels, project.channels, requirements.channels, settings.channels)
    return next((channels for channels in said if channels), (LOCAL_CHANNEL,))


def _python(project: Project, model: Model, requirements: Requirements, choice: Choice) -> str:
    """The Python version: the first of the caller's, the project's and the requirements' that says one."""
    said = (
        (choice.python, ""),
        (project.settings(model.folder.name).python, str(project.file)),
        (requirements.python, str(requirements.source)),
    )
    for python, where in said:
        if python:
            check_minor(python, where=where)
            return python
    raise UsageError(
        f"no Python version for model {model.name!r}",
        kind="no-python-version",
        hint="give --python 3.10, or write it into envpack.toml or environment.yml",
    )


def _refuse_stale(lock: Lock, question: _Question) -> None:
    wanted, has = question.target, lock.target
    reason = ""
    if lock.requirements_digest != digest_requirements(question.requirements, question.options.channels):
        reason = "answers other requirements or channels than the model has now"
    elif (has.platform, has.python) != (wanted.platform, wanted.python):
        reason = f"is for Python {has.python} on {has.platform}, not for {wanted.python} on {wanted.platform}"
    elif version_key(has.glibc) > version_key(wanted.glibc):
        reason = f"was made for glibc {has.glibc}, the release has {wanted.glibc}"
    if reason:
        raise InputError(
            f"the lockfile {reason}",
            kind="stale-lock",
            where=str(question.file),
            hint=f"run envpack lock {question.file.parent.name}; what still fits stays as it is",
        )


def _changes(before: Lock | None, now: Lock) -> tuple[str, ...]:
    if not before:
        return ()
    old, new = _versions(before), _versions(now)
    return tuple(
        f"{name} {old.get(name, '–')} → {new.get(name, '–')}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def _versions(lock: Lock) -> dict[str, str]:
    return {one.name: one.version for one in lock.conda} | {one.name: one.version for one in lock.pip}
