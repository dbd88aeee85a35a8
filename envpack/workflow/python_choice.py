"""The Python version of a model: what the user says, what the requirements allow, and what can be had."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from envpack.conda.choice import NO_INTERPRETER, interpreter_here
from envpack.conda.interpreters import available_interpreters
from envpack.lock.resolve import LOCAL_CHANNEL
from envpack.requirements.location import read_text
from envpack.requirements.model import Requirements
from envpack.requirements.target import allows_minor
from envpack.settings.project import Project
from envpack.settings.pythons import SUPPORTED, check_minor
from envpack.settings.releases import Release
from envpack.settings.table import PythonPreference, Settings
from envpack.support.errors import EnvironmentBuildError, EnvpackError, InputError
from envpack.support.progress import Progress
from envpack.workflow.recipe import Recipe, TakenOver


@dataclass(frozen=True)
class ChosenPython:
    """A Python version and why it is that one."""

    minor: str
    source: str  # "--python", a file, or a part of a sentence
    named: bool = True  # by the user or the model; otherwise envpack chooses it
    note: str = ""  # why, if it is not the release's own and neither the user nor the model names it


def choose_python(
    requirements: Requirements,
    *,
    said: tuple[str, str, str],
    had: Callable[[], Iterable[tuple[str, str]]],
    release: Release,
    here: Callable[[Requirements], set[str]],
) -> ChosenPython:
    """The Python of a model with these requirements: what the user says first, then what the model has.

    ``said`` is the user's version, its source and its file, ``had`` returns versions with their sources, and ``here``
    those that the requirements can have from this machine.
    """
    required = requirements.pythons
    name = requirements.source.name if requirements.source else ""
    minor, source, where = said
    if minor:
        check_minor(minor, where=where)
        if not allows_minor(required, minor):
            raise _excluded(f"Python {minor} ({source})", requirements)
        return ChosenPython(minor, source)
    if requirements.python:
        check_minor(requirements.python, where=requirements.places.get("python", str(requirements.source or "")))
        return ChosenPython(requirements.python, name)
    for minor, source in had():
        if allows_minor(required, minor):
            return ChosenPython(minor, source)
    own = f"Triton {release.name}"
    if allows_minor(required, release.python):
        return ChosenPython(release.python, own, named=False)
    allowed = tuple(minor for minor in SUPPORTED if allows_minor(required, minor))
    if not allowed:
        raise _excluded("every Python that envpack supports", requirements)
    usable = here(requirements)
    newest = [*allowed, *(minor for minor in allowed if minor in usable)][-1]
    note = f"Python {newest}: {own} has {release.python}, and {name} requires {required}"
    return ChosenPython(newest, f"the newest for {required} in {name}", named=False, note=note)


_PIN = re.compile(r"(?:c?python[-@]?)?(3\.\d{1,2}t?)(?:[.-]\S*)?")


def pinned_python(folder: Path) -> tuple[str, str, str]:
    """The first version of CPython that a folder names for pyenv, uv or Heroku, and where; all three may be ``""``."""
    for file in (folder / ".python-version", folder / "runtime.txt"):
        for line in read_text(file).splitlines() if file.is_file() else ():
            if found := _PIN.fullmatch(line.partition("#")[0].strip()):
                return found[1], file.name, str(file)
    return "", "", ""


def _excluded(what: str, requirements: Requirements) -> InputError:
    allowed = [minor for minor in SUPPORTED if allows_minor(requirements.pythons, minor)]
    among = f"use --python {' or '.join(allowed)}, or " if allowed else ""
    return InputError(
        "other-python",
        f"{what} is outside of {requirements.pythons}, which the requirements allow",
        f"{among}change the range in the file",
        requirements.places.get("python", str(requirements.source or "")),
    )


def usable_pythons(preference: PythonPreference, glibc: str) -> set[str]:
    """Minor versions of the interpreters of this machine that run with a version of glibc and that a stub can embed."""
    found = set()
    for minor in {interpreter.minor for interpreter in available_interpreters()}:
        with contextlib.suppress(EnvpackError):
            found.add(interpreter_here(minor, preference=preference, glibc=glibc).minor)
    return found


def with_another_python(
    project: Project,
    source: Recipe | TakenOver,
    python: ChosenPython | None,
    error: EnvironmentBuildError,
    progress: Progress,
) -> Project:
    """The project with the nearest Python of this machine; raises the error if it is about something else."""
    if isinstance(source, TakenOver) or python is None or python.named or error.kind not in NO_INTERPRETER:
        raise error
    if LOCAL_CHANNEL not in source.channels:
        raise error
    wanted = SUPPORTED.index(source.target.python)
    usable = {
        minor
        for minor in usable_pythons(source.python_preference, source.target.glibc)
        if minor in SUPPORTED and allows_minor(source.requirements.pythons, minor)
    }
    if not usable:
        raise error
    nearest = min(usable, key=lambda minor: (abs(SUPPORTED.index(minor) - wanted), -SUPPORTED.index(minor)))
    progress.detail(f"{source.name}: {error.message}")
    progress.detail(f"{source.name}: neither it nor an option names a Python, so it gets Python {nearest}")
    return project.saying(Settings(python=nearest))
