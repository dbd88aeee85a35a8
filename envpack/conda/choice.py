"""The choice of the interpreter of a minor version: one of this machine, else one that uv fetches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from envpack.conda.fetched import FetchError, fetch_python, fetching_forbidden, mark_fetched_used
from envpack.conda.interpreters import (
    Interpreter,
    available_interpreters,
    find_interpreters,
    unreadable_folders,
)
from envpack.requirements.target import allows_minor
from envpack.settings.pythons import FREE_THREADED, check_minor
from envpack.settings.releases import all_releases
from envpack.settings.table import PythonPreference
from envpack.support.elf import version_key
from envpack.support.errors import EnvironmentBuildError, StubError
from envpack.support.folders import real_path
from envpack.support.platforms import libpython_name
from envpack.support.progress import SILENT, Progress

_FETCHED_GLIBC = "2.17"  # those that uv fetches run with this version and later ones
# Kinds of the errors that say that there is no interpreter of a version.
NO_INTERPRETER = ("unknown-python", "static-interpreter", "free-threaded", "glibc-too-old")


def interpreter_for(
    minor: str,
    search: Sequence[Path] | None = None,
    *,
    preference: PythonPreference = "system",
    headers: bool = False,
    glibc: str = "",
    allowed: str = "",
    progress: Progress = SILENT,
) -> Interpreter:
    """The best interpreter of a minor version; uv fetches one into the cache if none of this machine fits.

    One fits if it has a shared library and runs with the target's C library. Of several, those that envpack has
    fetched come last, and the distribution's before them; of the others, the newest patch release is the best. An error
    proposes only versions in the range ``allowed``.
    """
    candidates = _Candidates(minor, search, preference, headers=headers, glibc=glibc, allowed=allowed)
    if not candidates.fitting and search is None and _may_fetch(preference, glibc):
        try:
            fetch_python(minor, candidates.lacking, progress)
        except FetchError as error:
            if not candidates.second:
                raise _error(candidates, error) from error
            progress.detail(f"use {candidates.second[0].executable} instead: {error.reason}")
        else:
            candidates = _Candidates(minor, search, preference, headers=headers, glibc=glibc, allowed=allowed)
    return _best(candidates)


def interpreter_here(
    minor: str, *, preference: PythonPreference = "system", headers: bool = False, glibc: str = ""
) -> Interpreter:
    """The best interpreter of a minor version without fetching any; arguments and errors as `interpreter_for`."""
    return _best(_Candidates(minor, None, preference, headers=headers, glibc=glibc))


def reason_to_fetch(minor: str, preference: PythonPreference, glibc: str, allowed: str = "") -> str:
    candidates = _Candidates(minor, None, preference, headers=False, glibc=glibc, allowed=allowed)
    if candidates.fitting:
        return ""
    may_fetch = _may_fetch(preference, glibc)
    forbidden = fetching_forbidden() if may_fetch else None
    if may_fetch and not forbidden:
        return candidates.lacking
    if candidates.second:
        return ""
    raise _error(candidates, forbidden)


def _may_fetch(preference: PythonPreference, glibc: str) -> bool:
    return preference != "only-system" and version_key(glibc or _FETCHED_GLIBC) >= version_key(_FETCHED_GLIBC)


class _Candidates:
    """The interpreters of a minor version on this machine."""

    def __init__(
        self,
        minor: str,
        search: Sequence[Path] | None,
        preference: PythonPreference,
        *,
        headers: bool,
        glibc: str,
        allowed: str = "",
    ) -> None:
        """Find them; ``search`` are folders to search instead of the usual ones."""
        check_minor(minor)
        self.minor, self.search, self.preference = minor, search, preference
        self.headers, self.glibc, self.allowed = headers, glibc, allowed
        found = [interpreter for interpreter in find_interpreters(minor, search) if _is_wanted(interpreter, preference)]
        complaints = [(interpreter, _complaint(interpreter, headers=headers, glibc=glibc)) for interpreter in found]
        self.unfit = [(one, complaint) for one, complaint in complaints if complaint]  # each with the reason
        self.fitting = sorted((one for one, complaint in complaints if not complaint), key=_rank, reverse=True)
        self.second: list[Interpreter] = []  # those to take if none can be fetched
        if preference == "managed":
            self.second = [one for one in self.fitting if not one.managed]
            self.fitting = [one for one in self.fitting if one.managed]

    @property
    def lacking(self) -> str:
        """Why none is taken from this machine, in a phrase."""
        if self.unfit:
            return "; ".join(f"{why} in {interpreter.executable}" for interpreter, why in self.unfit)
        whose = "of uv on this machine" if self.preference in ("managed", "only-managed") else "on this machine"
        return f"there is none {whose}{_skipped()}"


def _is_wanted(interpreter: Interpreter, preference: PythonPreference) -> bool:
    return {"only-system": not interpreter.managed, "only-managed": interpreter.managed}.get(preference, True)


def _complaint(interpreter: Interpreter, *, headers: bool, glibc: str) -> str:
    """Why an interpreter does not fit, by its program and library, as a noun phrase; ``""`` if it does."""
    if interpreter.free_threaded:
        return f"no GIL, and {FREE_THREADED}"
    if not interpreter.library:
        return f"no shared library ({libpython_name(interpreter.minor).removesuffix('.1.0')})"
    if headers and not interpreter.has_headers:
        return "no headers"
    if glibc and version_key(interpreter.glibc) > version_key(glibc):
        return f"symbols of glibc {interpreter.glibc} (the target has {glibc})"
    return ""


def _rank(interpreter: Interpreter) -> tuple[object, ...]:
    newest = version_key(interpreter.version)
    return not interpreter.for_debugging, not interpreter.fetched, not interpreter.distribution, newest


def _best(candidates: _Candidates) -> Interpreter:
    best = next(iter((*candidates.fitting, *candidates.second)), None)
    if best is None:
        raise _error(candidates, None)
    mark_fetched_used(best.executable)
    return best


def _error(candidates: _Candidates, failure: FetchError | None) -> EnvironmentBuildError | StubError:
    minor, unfit = candidates.minor, candidates.unfit
    tried = f"; none was fetched: {failure.reason}" if failure else ""
    details, hint = failure.details if failure else "", "; or ".join(_ways_out(candidates, failure))
    if not unfit:
        there = {
            found.minor
            for found in available_interpreters(candidates.search)
            if _is_wanted(found, candidates.preference)
        }
        available = ", ".join(sorted(there, key=version_key)) or "none"
        whose = " of uv" if candidates.preference == "only-managed" else ""
        message = f"no Python {minor}{whose} on this machine{_skipped()}; available: {available}{tried}"
        return EnvironmentBuildError("unknown-python", message, hint, details=details)
    has = "; ".join(f"{interpreter.executable} has {complaint}" for interpreter, complaint in unfit)
    message = f"no Python {minor} on this machine that a stub can embed: {has}{tried}"
    embeddable = [interpreter for interpreter, _ in unfit if interpreter.library and not interpreter.free_threaded]
    headless = [interpreter for interpreter in embeddable if candidates.headers and not interpreter.has_headers]
    if headless:
        where = str(headless[0].include)
        return StubError("headers-missing", message, hint, where, details=details)
    if embeddable:
        kind = "glibc-too-old"
    else:
        kind = "free-threaded" if all(found.free_threaded for found, _ in unfit) else "static-interpreter"
    where = str((embeddable or [unfit[0][0]])[0].executable)
    return EnvironmentBuildError(kind, message, hint, where, details=details)


def _skipped() -> str:
    closed = unreadable_folders()
    return f" ({' and '.join(closed)} cannot be read)" if closed else ""


def _newer_release(interpreters: Sequence[Interpreter]) -> Iterator[str]:
    """How a server can have one of some interpreters that need a newer C library than the target has, if one can."""
    least = min(interpreters, key=lambda one: version_key(one.glibc))
    newer = (one.name for one in all_releases().values() if version_key(one.glibc) >= version_key(least.glibc))
    for name in islice(newer, 1):
        needs = f"Python {least.minor} of this machine needs glibc {least.glibc}"
        yield f"choose a release with a newer system, with --triton {name}: {needs}"


def _ways_out(candidates: _Candidates, failure: FetchError | None) -> Iterator[str]:
    minor, preference = candidates.minor, candidates.preference
    if failure and failure.remedy:
        yield failure.remedy
    if preference == "only-system" and candidates.search is None:
        yield "let envpack fetch one, with --set python_preference=system"
    if preference == "only-managed":
        yield "allow one that is not uv's, with --set python_preference=managed"
    there = [one for one in available_interpreters(candidates.search) if _is_wanted(one, preference)]
    allowed = [one for one in there if allows_minor(candidates.allowed, one.minor)]
    others = [(one, _complaint(one, headers=candidates.headers, glibc=candidates.glibc)) for one in allowed]
    fitting = {one.minor for one, complaint in others if not complaint}
    if newer := [one for one, why in (*candidates.unfit, *(() if fitting else others)) if "glibc" in why]:
        yield from _newer_release(newer)
    if any(interpreter.free_threaded for interpreter, _ in candidates.unfit):
        yield f"install Python {minor} with the GIL, which is its default"
    if fitting:
        yield f"use one that is here: --python {' or '.join(sorted(fitting, key=version_key))}"
    incomplete = (
        one.distribution for one, why in candidates.unfit if why.startswith(("no shared library", "no headers"))
    )
    if shutil.which("apt-get") and any(incomplete):
        default = real_path(Path("/usr/bin/python3")).name == f"python{minor}"
        yield f"apt-get install python{'3' if default else minor}-dev"
    if preference != "only-managed" and (shutil.which("pyenv") or os.environ.get("PYENV_ROOT")):
        yield f"PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install {minor}"
    if candidates.headers:
        yield "compile against an environment, with --prefix"
    else:
        yield "take Python from a conda channel, such as --channel conda-forge"
