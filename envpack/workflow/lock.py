"""From a model to its lock, and from its lock to its environment."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from envpack.environment.build import environment_of
from envpack.environment.store import Environment
from envpack.inspection.imports import addition_of, requirement_warnings
from envpack.lock.lockfile import Lock, digest_requirements, write_lock
from envpack.lock.resolve import DOES_NOT_FIT, LockOptions, can_try, lock_requirements, resolves
from envpack.repository.selection import named_models
from envpack.requirements.model import CondaPackage, PipPackage
from envpack.requirements.target import Target, allows_minor
from envpack.settings.project import Project
from envpack.settings.pythons import SUPPORTED
from envpack.store.shared import SharedStore
from envpack.support.elf import version_key
from envpack.support.entry_locks import ingredients_in_use
from envpack.support.errors import EnvironmentBuildError, EnvpackError, InputError, storage_errors
from envpack.support.progress import SILENT, Progress
from envpack.support.redaction import public_url
from envpack.workflow.python_choice import ChosenPython, with_another_python
from envpack.workflow.recipe import Recipe
from envpack.workflow.requests import is_resolved, lock_request
from envpack.workflow.shared import find_lock, locate_packages, obtain_environment, push_lock, push_packages

KnownLocks = dict[tuple[object, ...], tuple[str, Lock]]
"""Locks by what they were resolved from, each with the name of the first model that has it."""

_NUMPY = ("numpy", "numpy-base")
_TRYING = 15.0  # seconds for other Pythons


@dataclass(frozen=True)
class LockedModel:
    """A model whose packages are resolved.

    Attributes:
        name: the model.
        file: its lockfile; ``None`` for an ensemble, and for a model whose environment is taken over from a folder.
        packages: how many packages it names.
        changes: what became of packages since the lockfile before, as ``"numpy 1.26.3 → 1.26.4"``.
        changed: whether the lockfile was written.
        local: packages that it names by a path of this machine, as ``"python 3.10.13"``.
        warnings: what of its requirements was not read or does not fit the model's code.
    """

    name: str
    file: Path | None
    packages: int
    changes: tuple[str, ...]
    changed: bool
    _: KW_ONLY
    local: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def lock_model(
    project: Project,
    name: str,
    *,
    update: tuple[str, ...] = (),
    progress: Progress = SILENT,
    store: SharedStore | None = None,
    resolved: str = "",
    known: KnownLocks | None = None,
) -> LockedModel:
    """Resolve a model's packages and write them to ``envpack.lock`` in its folder.

    What an earlier lockfile holds stays as it is where it still fits.

    Args:
        project: the model repository.
        name: of the model.
        update: packages that are resolved anew all the same.
        progress: receives each step.
        store: a store that machines share. A model without lockfile gets the lock that it has for the same
            requirements.
        resolved: the text of the lock, if another machine has resolved it.
        known: what earlier calls resolved; a model with the same requirements gets the same packages.

    Raises:
        InputError: the model, its requirements or its lockfile are wrong.
        UsageError: an unknown Python version; ``update`` names a package that is not locked.
        EnvironmentBuildError: no set of packages meets the requirements, or a channel or an index does not answer.
        StorageError: the store cannot be used, or the disk is full.
    """
    (model,) = named_models(project.repository, [name])
    if not is_resolved(project, model):
        return LockedModel(model.name, None, 0, (), changed=False)
    recipe, python = lock_request(project, model)
    file, before = recipe.lock_file, recipe.locked
    with storage_errors(file):
        try:
            if resolved:
                lock = Lock.parse(resolved, file)
            else:
                report_python(python, progress)
                lock = resolve_lock(recipe, update, progress, store, known)
        except EnvironmentBuildError as error:
            another = with_another_python(project, recipe, python, error, progress)
            lock = resolve_lock(lock_request(another, model)[0], update, progress, store, known)
        refuse_without_numpy(lock, recipe)
        changed = write_lock(lock, file)
    packages = _packages(lock)
    local = tuple(f"{package.name} {package.version}" for package in packages if package.url.startswith("file:"))
    warnings = tuple(requirement_warnings(model, recipe.requirements, lock.target.python, lock.names))
    return LockedModel(model.name, file, len(packages), _changes(before, lock), changed, local=local, warnings=warnings)


def report_python(python: ChosenPython | None, progress: Progress) -> None:
    """Report why envpack chose this Python, if neither the user nor the model names one."""
    if python and python.note:
        progress.detail(python.note)


def resolve_lock(
    recipe: Recipe,
    update: tuple[str, ...],
    progress: Progress,
    store: SharedStore | None,
    known: KnownLocks | None = None,
) -> Lock:
    asked = recipe.lock_key, recipe.python_preference, recipe.lock, update
    if known and asked in known:
        name, lock = known[asked]
        progress.detail(f"{recipe.name}: requires what {name} does")
        return lock
    lock = _resolved_lock(recipe, update, progress, store)
    if known is not None:
        known[asked] = recipe.name, lock
    return lock


def _resolved_lock(recipe: Recipe, update: tuple[str, ...], progress: Progress, store: SharedStore | None) -> Lock:
    before = recipe.locked
    fits = before is not None and before.target.python == recipe.target.python
    options = recipe.options(previous=before if fits else None, update=update)
    with ingredients_in_use(options.cache):
        key = recipe.lock_key if store else ""
        found = find_lock(store, key, progress) if store and before is None and not update else None
        with _other_pythons_in_hint(recipe, progress):
            lock = found or lock_requirements(recipe.requirements, recipe.target, options, progress)
        if store and store.push and found is None and recipe.lock_key == key:  # no project has changed
            push_lock(store, key, lock)
    return lock


def locked_environment(recipe: Recipe, progress: Progress, store: SharedStore | None = None) -> Environment:
    """The environment of a recipe: of the model's lock if it has one, else of what its requirements resolve to."""
    options, lock, strip = recipe.options(), recipe.locked, recipe.strip
    if lock is None:
        with _other_pythons_in_hint(recipe, progress):
            lock = _remembered_lock(recipe, options, progress, store)
    else:
        refuse_stale(lock, recipe)
    refuse_without_numpy(lock, recipe)
    cache = options.cache

    def made(fill: Callable[[Path], None] | None) -> Environment:
        fetches = store is not None and fill is None
        return environment_of(
            locate_packages(store, lock, cache, progress) if fetches and store else lock,
            options,
            progress,
            variables=recipe.requirements.download_variables,
            strip=strip,
            fill=fill,
        )

    if store is None:
        return made(None)
    if store.push:
        push_packages(store, lock)
    return obtain_environment(store, lock.environment_key(strip=strip), made, cache, progress)


@contextlib.contextmanager
def _other_pythons_in_hint(recipe: Recipe, progress: Progress) -> Iterator[None]:
    """Let the hint of an error name another Python that the packages have, if no file of the model names this one."""
    try:
        yield
    except EnvironmentBuildError as error:
        if error.kind in DOES_NOT_FIT and not recipe.requirements.python:
            _name_other_pythons(error, recipe, progress)
        raise


def _name_other_pythons(error: EnvironmentBuildError, recipe: Recipe, progress: Progress) -> None:
    """Add the nearest Python for which requirements resolve, else all that they allow: pins often fit one alone."""
    at, pythons = SUPPORTED.index(recipe.target.python), recipe.requirements.pythons
    others = [minor for minor in SUPPORTED if minor != recipe.target.python and allows_minor(pythons, minor)]
    nearest = sorted(others, key=lambda minor: (abs(SUPPORTED.index(minor) - at), -SUPPORTED.index(minor)))
    with contextlib.suppress(EnvpackError):
        if can_try(recipe.requirements, recipe.options()):
            if fitting := _fitting_python(recipe, nearest, progress):
                error.fitting_python = fitting
                error.hint += f"; or take a Python for which all of it resolves: --python {fitting}"
            return
    if pythons and others:
        error.hint += f"; or choose another Python that {pythons} allows: --python {' or '.join(others)}"
    elif recipe.requirements.projects:
        error.hint += "; or choose another Python with --python"


def _fitting_python(recipe: Recipe, minors: Sequence[str], progress: Progress) -> str:
    """The first Python for which requirements resolve, ``""`` if none is found within a quarter of a minute."""
    options, until = recipe.options(), time.monotonic() + _TRYING
    progress.begin("look for another Python that the requirements resolve for")
    for minor in minors:
        if time.monotonic() < until and resolves(recipe.requirements, replace(recipe.target, python=minor), options):
            progress.end(f"Python {minor}")
            return minor
    progress.end("none")
    return ""


def refuse_without_numpy(lock: Lock, recipe: Recipe) -> None:
    """Refuse a lock from which no build makes an environment."""
    if not lock.names.intersection(_NUMPY):
        file = recipe.requirements.source or recipe.lock_file.with_name("requirements.txt")
        raise numpy_missing("the requirements", file, addition_of(["numpy"], recipe.requirements, file))


def numpy_missing(subject: str, where: Path, hint: str) -> InputError:
    what = f"no NumPy in {subject}; Triton's Python backend needs it in every execution environment"
    return InputError("numpy-missing", what, hint, str(where))


def _remembered_lock(recipe: Recipe, options: LockOptions, progress: Progress, store: SharedStore | None) -> Lock:
    """The lock to which the requirements resolved first: on this machine, else in the store, else now."""
    asked = recipe.requirements, recipe.target
    if store is None:
        return options.resolve_once(*asked, progress)
    key, lock = recipe.lock_key, remembered_here(recipe)
    found = None if lock and not store.push else find_lock(store, key, progress)
    if lock is None and found is not None:
        return found
    lock = lock or options.resolve_once(*asked, progress)
    if store.push and found is None and recipe.lock_key == key:  # no project has changed
        push_lock(store, key, lock)
    return lock


def remembered_here(recipe: Recipe) -> Lock | None:
    with contextlib.suppress(EnvironmentBuildError):  # no interpreter may be fetched, but the store may have the lock
        return recipe.options().remembered(recipe.requirements, recipe.target)
    return None


def refuse_stale(lock: Lock, recipe: Recipe) -> None:
    wanted, has = recipe.target, lock.target
    reason = ""
    if (has.platform, has.python) != (wanted.platform, wanted.python):
        reason = f"is for Python {has.python} on {has.platform}, not for {wanted.python} on {wanted.platform}"
    elif lock.requirements_digest != digest_requirements(recipe.requirements, recipe.channels):
        reason = "was made for other requirements or channels than the model has now"
    elif version_key(has.glibc) > version_key(wanted.glibc):
        reason = f"was made for glibc {has.glibc}, the release has {wanted.glibc}"
    if reason:
        options = (*_other_options(recipe, has), *_other_channels(recipe, lock))
        fix = " ".join((f"run envpack lock {recipe.name}", *options))
        fix += "; what still fits stays as it is" if has.python == wanted.python else ""
        raise InputError("stale-lock", f"the lockfile {reason}", fix, str(recipe.lock_file))


def _other_options(recipe: Recipe, has: Target) -> Iterator[str]:
    """The options with which a lock gets the target of a recipe; without them it may keep the one that it has."""
    wanted = recipe.target
    if has.python != wanted.python:
        yield f"--python {wanted.python}"
    if has.platform != wanted.platform:
        yield f"--platform {wanted.platform}"
    if version_key(has.glibc) > version_key(wanted.glibc):
        yield f"--triton {recipe.triton}"


def _other_channels(recipe: Recipe, lock: Lock) -> Iterator[str]:
    """The options with which a lock gets the channels of a recipe, if it was made with others."""
    if not recipe.has_local_channel and recipe.options().settings.resolve(recipe.channels).urls != lock.channels:
        yield from (f"--channel {shlex.quote(public_url(channel))}" for channel in recipe.channels)


def _changes(before: Lock | None, now: Lock) -> tuple[str, ...]:
    old, new = versions(before) if before else {}, versions(now)
    different = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return tuple(version_change(name, old, new) for name in different) if before else ()


def versions(lock: Lock) -> dict[str, str]:
    return {package.name: package.version for package in _packages(lock)}


def _packages(lock: Lock) -> tuple[CondaPackage | PipPackage, ...]:
    return *lock.conda, *lock.pip


def version_change(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """What became of a package, as ``"numpy 1.26.3 → 1.26.4"``."""
    return f"{name} {old.get(name, '–')} → {new.get(name, '–')}"
