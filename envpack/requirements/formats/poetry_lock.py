"""``poetry.lock``: the packages that a project's main dependencies need, each with its version and hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, NoReturn

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envpack.requirements.conda_spec import poetry_range
from envpack.requirements.format import Source, reads
from envpack.requirements.formats.pip_file import PipReader, is_public
from envpack.requirements.formats.pyproject import read_selection
from envpack.requirements.model import Requirements
from envpack.requirements.outdated_locks import refuse_other_python, refuse_outdated, refuse_unlocked, versions_of
from envpack.requirements.pip_requirement import reduced_marker
from envpack.requirements.target import Target, single_minor
from envpack.support.tables import List, Location, Table, Value, quote, table_of

_VERSIONS = re.compile(r"(1\.[01]|2\.[0-9]+)")
_WITH_GROUPS = "groups"  # a key of each package since version 2.1 of the lock
_COMMAND = "poetry lock"
_HINT = f"write it again, which keeps the versions: {_COMMAND}"
_PLACES = ("url", "file", "directory")  # of packages that are not from an index or a repository
_MAIN = "main"
_DEV, _DEV_DEPENDENCIES = "dev", "dev-dependencies"  # the only group before Poetry 1.2, and its table


@reads("poetry.lock", order=14)
def read_poetry_lock(source: Source) -> Requirements:
    """`poetry.lock`, versions 1.0 to 2.x

    Read: versions and hashes of the main group, and of the extras and groups that `[tool.envpack]` selects; before
    version 2.1, with the dependencies of `[tool.poetry]` beside it

    Refused: repositories; before 2.1, a package that is locked twice: `poetry lock` writes a
    newer version
    """
    return _Reader(source).requirements()


class _Wanted(NamedTuple):
    """A package that is needed if a marker holds; an empty one always does."""

    package: Table
    marker: str


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source, self._location, self._target = source, source.location, source.target
        content = table_of(source.toml, source.location)
        self._metadata = content.table("metadata")
        version = self._metadata.text("lock-version", "")
        if not version:
            hint = "Poetry 2 does not read it either; delete it, and run: poetry lock"
            raise self._location.error("the lock has no version, as before Poetry 1.1", hint=hint)
        if not _VERSIONS.fullmatch(version):
            reason = f"version {quote(version)} of the lock is not supported"
            raise source.place("lock-version").error(reason, hint=_HINT)
        content.tables("package")  # checks that it is a list of tables
        self._packages = [
            table_of(package, source.package_places.get(str(package.get("name")), self._location))
            for package in source.toml.get("package", ())
        ]
        self._extras = content.table("extras")

    def requirements(self) -> Requirements:
        project, reader = self._source.project.path, PipReader()
        reader.files += [project] if project.is_file() else []
        python = self._python_range(), self._source.place("python-versions")
        if not self._target.python and self._source.choose:
            found = reader.requirements(self._source.path, *python)
            self._target = replace(self._target, python=self._source.choose(found))
        for package, marker in self._wanted():
            reader.read_lines(self._line(package, marker), package.location)
            index = package.table("source")
            if index.text("type", "") == "legacy" and not is_public(index.text("url")):
                name, reference = package.text("name"), index.text("reference", "")
                reader.take_from(index.text("url"), name, package.location, name=reference)
        return reader.requirements(self._source.path, *python)

    def _python_range(self) -> str:
        allowed = self._metadata.text("python-versions", "")
        try:
            found = poetry_range(allowed)
            single_minor(found)
        except ValueError as error:
            raise self._location.error(f"python-versions {quote(allowed)} is not a range", hint=_HINT) from error
        return found

    def _wanted(self) -> list[_Wanted]:
        extras, groups = read_selection(self._source.project)
        selected = {name for extra in extras for name in self._extra(extra)}
        groups = [_MAIN, *map(canonicalize_name, groups)]
        self._refuse_outdated(groups, selected)
        if all(_WITH_GROUPS in package for package in self._packages):
            return list(self._of_groups(groups, extras, selected))
        roots = _Roots(self._source.project, self._location)
        reachable = _Reachable(self._packages, self._target)
        return reachable.of([edge for group in groups for edge in roots.of(group, selected)])

    def _refuse_outdated(self, groups: list[str], selected: set[str]) -> None:
        project, locked = self._source.project, versions_of(self._source.toml.get("package", ()))
        of_target, pythons = replace(project, target=self._target), self._python_range()
        refuse_outdated(of_target, self._location, locked, _COMMAND, pythons=pythons)
        roots = _Roots(project, self._location)
        refuse_other_python(_range_of(roots.main.text("python", "")), pythons, project, self._location, _COMMAND)
        for edge in (edge for group in groups if roots.table(group) for edge in roots.of(group, selected)):
            if _reduced(edge.marker, edge.location, self._target, []) == "":
                where = project.place(edge.name)
                refuse_unlocked(edge.name, _range_of(edge.versions), locked, where, self._location, _COMMAND)

        for name, (entry, _) in (
            item for group in groups for item in (roots.table(group) or roots.main).values.items()
        ):
            self._refuse_other_source(name, entry)

    def _refuse_other_source(self, name: str, entry: Value) -> None:
        """Refuse a lock with a package from another source than the one that its project now names."""
        wanted = entry.text("source", "") if isinstance(entry, Table) else ""
        named = (
            package for package in self._packages if canonicalize_name(package.text("name")) == canonicalize_name(name)
        )
        found = {package.table("source").text("reference", "").lower() for package in named}
        if wanted.lower() not in ("", "pypi") and found and wanted.lower() not in found:
            what = f"{name} is to come from the source {quote(wanted)}, and poetry.lock has it from another"
            raise self._source.project.place(name).error(
                f"{what}: the lock is older", hint=f"write the lock again: {_COMMAND}"
            )

    def _of_groups(self, groups: list[str], extras: list[str], selected: set[str]) -> Iterator[_Wanted]:
        """The packages of groups; a package of extras has a marker that names them, unless no extra has it."""
        named = [[canonicalize_name(text) for text, _ in package.texts(_WITH_GROUPS)] for package in self._packages]
        packages = [*zip(self._packages, named, strict=True)]
        absent = [group for group in groups[1:] if not any(group in of_package for _, of_package in packages)]
        if absent:
            raise self._location.error(f"there is no package of the group {quote(absent[0])} in the lock", hint=_HINT)
        for package, of_package in packages:
            texts = [_marker_of(package, group) for group in groups if group in of_package]
            if package.text("optional", "") == "true":
                listed = canonicalize_name(package.text("name")) in selected
                texts = [text for text in texts if listed or "extra" in text]
            reduced = [_reduced(text, package.location, self._target, extras) for text in texts]
            markers = [marker for marker in reduced if marker is not None]
            if markers:
                yield _Wanted(package, _any_of(markers))

    def _extra(self, name: str) -> list[str]:
        known = {canonicalize_name(extra): extra for extra in self._extras.values}
        if canonicalize_name(name) not in known:
            raise self._location.error(f"there is no extra {quote(name)} in the lock", hint=_HINT)
        texts = self._extras.texts(known[canonicalize_name(name)])
        return [canonicalize_name(re.split(r"[^\w.-]", text.strip(), maxsplit=1)[0]) for text, _ in texts]

    def _line(self, package: Table, marker: str) -> str:
        name, version, source = package.text("name"), package.text("version"), package.table("source")
        files = package.tables("files") or self._metadata.table("files").tables(name)
        hashes = "".join(f" --hash={file.text('hash')}" for file in files)
        condition = f" ; {marker}" if marker else ""
        kind = source.text("type", "legacy")
        if kind in _PLACES:
            return f"{name} @ {source.text('url')}{condition}{hashes}"
        if kind != "legacy":
            raise package.location.error(
                f"{quote(name)} is not from an index but from {quote(source.text('url', kind))}",
                hint="build a wheel of it, and name the wheel in pyproject.toml",
            )
        return f"{name}=={version}{condition}{hashes}"


class _Edge(NamedTuple):
    """A dependency: name, versions in Poetry's syntax, extras and marker of the package that is needed."""

    name: str
    versions: str
    extras: tuple[str, ...]
    marker: str
    location: Location


class _Roots:
    """The dependencies of a project: versions of the lock before 2.1 do not say which packages they lead to."""

    def __init__(self, project: Source, lock: Location) -> None:
        self._poetry = table_of(project.toml, project.location).table("tool").table("poetry")
        self.main = self._poetry.table("dependencies")
        self._lock = lock

    def of(self, group: str, selected: set[str]) -> Iterator[_Edge]:
        """The dependencies of a group, of the optional ones those that are selected."""
        dependencies = self.table(group) or self._missing(group)
        for name, (entry, location) in dependencies.values.items():
            parts = list(_parts(entry, location))
            optional = all(isinstance(part, Table) and part.text("optional", "") == "true" for part in parts)
            if name != "python" and (canonicalize_name(name) in selected or not optional):
                yield from _edges(name, entry, location)

    def table(self, group: str) -> Table | None:
        """The dependencies of a group in Poetry's own tables."""
        if group == _MAIN:
            return self.main if "dependencies" in self._poetry else None
        if group == _DEV and _DEV_DEPENDENCIES in self._poetry:
            return self._poetry.table(_DEV_DEPENDENCIES)
        groups = self._poetry.table("group")
        name = next((name for name in groups.values if canonicalize_name(name) == group), "")
        return groups.table(name).table("dependencies") if name else None

    def _missing(self, group: str) -> NoReturn:
        if group == _MAIN:
            raise self._lock.error(
                "this version of the lock is read together with the [tool.poetry.dependencies] of its project,"
                " which are not beside it",
                hint=_HINT,
            )
        what = f"there is no group {quote(group)} in [tool.poetry.group]"
        raise self._poetry.location.error(what, hint="correct tool.envpack.groups")


class _Reachable:
    """The packages that some dependencies need, directly or not."""

    def __init__(self, packages: list[Table], target: Target) -> None:
        self._target = target
        self._by_name: dict[str, Table] = {}
        for package in packages:
            name = canonicalize_name(package.text("name"))
            if name in self._by_name:
                raise package.location.error(
                    f"{quote(name)} is locked twice, and this version of the lock does not say for what", hint=_HINT
                )
            self._by_name[name] = package

    def of(self, roots: list[_Edge]) -> list[_Wanted]:
        """The packages, each with the markers of the dependencies that lead to it directly."""
        pending = [(edge, "") for edge in roots]
        seen: set[tuple[str, str]] = set()
        markers: dict[str, list[str]] = {}
        while pending:
            edge, active = pending.pop()
            marker = _reduced(edge.marker, edge.location, self._target, [active] if active else [])
            package = self._by_name.get(edge.name)
            if marker is None or package is None:  # of another platform or Python
                continue
            markers.setdefault(edge.name, []).append(marker)
            for extra in ("", *edge.extras):
                if (edge.name, extra) not in seen:
                    seen.add((edge.name, extra))
                    dependencies = package.table("dependencies").values.items()
                    pending += [(next_edge, extra) for name, at in dependencies for next_edge in _edges(name, *at)]
        return [_Wanted(self._by_name[name], _any_of(markers[name])) for name in sorted(markers)]


def _edges(name: str, entry: Value, location: Location) -> Iterator[_Edge]:
    for part in _parts(entry, location):
        if isinstance(part, Table):
            extras = tuple(text for text, _ in part.texts("extras"))
            yield _Edge(canonicalize_name(name), part.text("version", ""), extras, _condition(part), location)
        else:
            yield _Edge(canonicalize_name(name), str(part), (), "", location)


def _range_of(text: str) -> str:
    """Versions in Poetry's syntax as version specifiers; ``""`` also for forms that only Poetry reads."""
    try:
        return poetry_range(text)
    except ValueError:
        return ""


def _parts(entry: Value, location: Location) -> Iterator[Value]:
    for part, _ in entry.items if isinstance(entry, List) else [(entry, location)]:
        if not isinstance(part, (str, Table)):
            raise location.error("a dependency must be a version or a table", hint=_HINT)
        yield part


def _condition(part: Table) -> str:
    """The marker of a dependency, with what Poetry writes apart from it: Python and platform."""
    found = [f"({text})"] if (text := part.text("markers", "")) else []
    if platform := part.text("platform", ""):
        found.append(f'sys_platform == "{platform}"')
    try:
        alternatives = [SpecifierSet(text) for text in poetry_range(part.text("python", "*")).split("|")]
    except ValueError as error:
        raise part.location.error("python of a dependency is not a range", hint=_HINT) from error
    ranges = [
        " and ".join(f'python_full_version {one.operator} "{one.version}"' for one in some) for some in alternatives
    ]
    if all(ranges):
        found.append(f"({' or '.join(ranges)})")
    return " and ".join(found)


def _reduced(marker: str, location: Location, target: Target, extras: list[str]) -> str | None:
    try:
        return reduced_marker(marker, target, extras)
    except ValueError as error:
        raise location.error(f"{quote(marker)} is not a marker", hint=_HINT) from error


def _any_of(markers: list[str]) -> str:
    return "" if "" in markers else " or ".join(dict.fromkeys(markers))


def _marker_of(package: Table, group: str) -> str:
    """The marker of a package, which can differ between groups."""
    value, _ = package.get("markers")
    return package.table("markers").text(group, "") if isinstance(value, Table) else package.text("markers", "")
