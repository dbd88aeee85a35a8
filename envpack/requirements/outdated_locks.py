"""Locks that are older than the requirements of their project: an environment would lack what was added since."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envpack.requirements.format import Source
from envpack.requirements.formats.pyproject import read_required
from envpack.requirements.pip_requirement import reduced_marker
from envpack.requirements.target import Target, minors_in
from envpack.requirements.tool_tables import ToolTables
from envpack.support.redaction import public_url
from envpack.support.tables import Location, quote

NO_INDEXES: Mapping[str, str] = {}
Versions = Mapping[Any, Collection[str]]  # of each package in a lock, by its normalised name


def refuse_outdated(
    project: Source,
    lock: Location,
    locked: Versions,
    command: str,
    *,
    pythons: str,
    indexes: Mapping[str, str] = NO_INDEXES,  # of packages in the lock
) -> None:
    """Refuse a lock that lacks a package which the project requires, or has another version of it, or another index.

    So is one for a Python that the project does not allow. Requirements with a marker count only if it certainly holds
    for the target.
    """
    table = project.toml.get("project", {})
    table = table if isinstance(table, dict) else {}
    refuse_other_python(str(table.get("requires-python", "")), pythons, project, lock, command)
    own = canonicalize_name(str(table.get("name", "")))
    for text in read_required(project):
        requirement = _parsed(text, project.target)
        if requirement is not None and canonicalize_name(requirement.name) != own:
            specifier = "" if requirement.url else str(requirement.specifier)
            refuse_unlocked(requirement.name, specifier, locked, project.place(text), lock, command)
            _refuse_other_index(canonicalize_name(requirement.name), indexes, project, lock, command)


def _refuse_other_index(name: str, indexes: Mapping[str, str], project: Source, lock: Location, command: str) -> None:
    """Refuse a lock with a package from another index than the one that its project now has for this package alone."""
    wanted, has = (public_url(url).rstrip("/") for url in (ToolTables(project).index_of(name), indexes.get(name, "")))
    if wanted.startswith("http") and has.startswith("http") and wanted.lower() != has.lower():
        what = f"{name} is to come from {wanted}, and {lock.path.name} has it from {has}: the lock is older"
        raise project.place(wanted).error(what, hint=f"write the lock again: {command}")


def refuse_unlocked(name: str, specifier: str, locked: Versions, where: Location, lock: Location, command: str) -> None:
    versions = locked.get(canonicalize_name(name))
    if versions is not None and _allows(specifier, versions):
        return
    has = f"has {', '.join(sorted(versions))}" if versions else "does not have it"
    raise where.error(
        f"{quote(name + specifier)} is required, and {lock.path.name} {has}: the lock is older",
        hint=f"write the lock again: {command}",
    )


def refuse_other_python(allowed: str, pythons: str, project: Source, lock: Location, command: str) -> None:
    with contextlib.suppress(ValueError):  # which others report
        if pythons and not {*minors_in(pythons)} <= {*minors_in(allowed)}:
            raise project.place("python").error(
                f"Python {quote(allowed)} is required, and {lock.path.name} is for {quote(pythons)}: the lock is older",
                hint=f"write the lock again: {command}",
            )


def versions_of(packages: Iterable[Any]) -> Versions:
    found: dict[str, set[str]] = {}
    for package in packages:
        if isinstance(package, dict) and isinstance(package.get("name"), str):
            versions = found.setdefault(canonicalize_name(package["name"]), set())
            versions.update([package["version"]] if isinstance(package.get("version"), str) else [])
    return found


def _parsed(text: str, target: Target) -> Requirement | None:
    """A requirement that certainly applies to a target; ``None`` for any other, and for none, which others report."""
    try:
        requirement = Requirement(text)
        applies = requirement.marker is None or reduced_marker(str(requirement.marker), target) == ""
    except ValueError:
        return None
    return requirement if applies else None


def _allows(specifier: str, versions: Collection[str]) -> bool:
    """Whether a specifier allows one of some versions; true if either is none, and for a package without version."""
    try:
        sets = [SpecifierSet(text) for text in specifier.split("|")]
        return not versions or any(one.contains(version, prereleases=True) for version in versions for one in sets)
    except ValueError:
        return True
