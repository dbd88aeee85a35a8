"""``poetry.lock``: the packages that a project's main dependencies need, each with its version and hashes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from envpack.requirements.format import Source, reads
from envpack.requirements.formats.pip_file import PipReader, extra_index_options
from envpack.requirements.formats.pyproject import read_selection
from envpack.requirements.model import Requirements
from envpack.requirements.target import single_minor
from envpack.support.tables import Location, quote

_VERSIONS = re.compile(r"(1\.[01]|2\.[0-9]+)")
_WITH_GROUPS = "groups"  # a key of each package since version 2.1 of the lock
_HINT = "write it again, which keeps the versions: poetry lock"
_MAIN = "main"


@reads("poetry.lock", order=14)
def read_poetry_lock(source: Source) -> Requirements:
    """`poetry.lock`, versions 1.0 to 2.x

    Read: versions and hashes of the main group, and of the extras that `[tool.envpack]` selects; before version 2.1,
    with the dependencies of `[tool.poetry]` beside it

    Refused: packages that are not from an index; before 2.1, a package that is locked twice: `poetry lock` writes a
    newer version
    """
    return _Reader(source).requirements()


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source, self._location, content = source, source.location, source.toml
        metadata = content.get("metadata", {})
        version = str(metadata.get("lock-version", "")) if isinstance(metadata, dict) else ""
        if not _VERSIONS.fullmatch(version):
            reason = f"version {quote(version)} of the lock is not supported"
            raise source.place("lock-version").error(reason, hint=_HINT)
        self._packages: list[dict[str, Any]] = [*content.get("package", [])]
        self._metadata: dict[str, Any] = metadata
        self._extras = content.get("extras", {})

    def requirements(self) -> Requirements:
        path, reader = self._location.path, PipReader()
        python_range = self._python_range()
        sources = {str(source["url"]) for package in self._packages if (source := self._index(package))}
        for option in extra_index_options(sorted(sources)):
            reader.read_lines(option, self._location)
        for package in self._wanted():
            location = self._place(package)
            reader.read_lines(self._line(package, location), location)
        reader.places["python"] = str(self._source.place("python-versions"))
        return reader.requirements(
            python=single_minor(python_range) if python_range else "",
            python_range=python_range,
            source=path,
            files=(path, *reader.files),
        )

    def _python_range(self) -> str:
        allowed = str(self._metadata.get("python-versions", ""))
        try:
            found = poetry_range(allowed)
            single_minor(found)
        except ValueError as error:
            raise self._location.error(f"python-versions {quote(allowed)} is not a range", hint=_HINT) from error
        return found

    def _place(self, package: Mapping[str, Any]) -> Location:
        return self._source.place(f'name = "{package.get("name")}"')

    def _index(self, package: Mapping[str, Any]) -> Mapping[str, Any] | None:
        source = package.get("source")
        return source if isinstance(source, dict) and source.get("type") == "legacy" else None

    def _wanted(self) -> list[dict[str, Any]]:
        extras, _ = read_selection(self._source.project)
        selected: set[str] = {canonicalize_name(name.split(" ")[0]) for extra in extras for name in self._extra(extra)}
        if all(_WITH_GROUPS in package for package in self._packages):
            return [
                package
                for package in self._packages
                if _MAIN in package[_WITH_GROUPS]
                and (not package.get("optional") or canonicalize_name(str(package["name"])) in selected)
            ]
        return self._reachable(_main_dependencies(self._source.project.toml, self._location), selected)

    def _extra(self, name: str) -> list[str]:
        if name not in self._extras:
            raise self._location.error(f"there is no extra {quote(name)} in the lock", hint=_HINT)
        return [str(entry) for entry in self._extras[name]]

    def _reachable(self, roots: Mapping[str, Any], selected: set[str]) -> list[dict[str, Any]]:
        """The packages that some dependencies need, directly or not."""
        by_name: dict[str, dict[str, Any]] = {}
        for package in self._packages:
            name = canonicalize_name(str(package["name"]))
            if name in by_name:
                raise self._place(package).error(
                    f"{quote(name)} is locked twice, and this version of the lock does not say for what", hint=_HINT
                )
            by_name[name] = package
        pending: list[tuple[str, tuple[str, ...]]] = [
            (canonicalize_name(name), extras)
            for name, entry in roots.items()
            if not _is_optional(entry) or canonicalize_name(name) in selected
            for extras in [_extras_of(entry)]
        ]
        seen: set[tuple[str, str]] = set()
        found: dict[str, dict[str, Any]] = {}
        while pending:
            needed, extras = pending.pop()
            if needed not in by_name:
                continue  # of another platform or Python
            package = found[needed] = by_name[needed]
            for extra in {"", *extras}:
                if (needed, extra) not in seen:
                    seen.add((needed, extra))
                    pending += _dependencies(package, extra)
        return [found[name] for name in sorted(found)]

    def _line(self, package: Mapping[str, Any], location: Location) -> str:
        """A package as a line of a requirements file."""
        name, version = str(package.get("name", "")), str(package.get("version", ""))
        source = package.get("source")
        if isinstance(source, dict) and source.get("type") == "url":
            return f"{name} @ {source.get('url')}"
        if isinstance(source, dict) and source.get("type") != "legacy":
            raise location.error(
                f"{quote(name)} is not from an index but from {quote(str(source.get('url', source.get('type'))))}",
                hint="build a wheel of it, and name the wheel in pyproject.toml",
            )
        markers = package.get("markers", "")
        if isinstance(markers, dict):
            markers = markers.get(_MAIN, "")
        files = package.get("files") or self._metadata.get("files", {}).get(name, [])
        hashes = "".join(f" --hash={file['hash']}" for file in files)
        return f"{name}=={version}{f' ; {markers}' if markers else ''}{hashes}"


def _main_dependencies(content: Mapping[str, Any], location: Location) -> Mapping[str, Any]:
    try:
        return {name: entry for name, entry in content["tool"]["poetry"]["dependencies"].items() if name != "python"}
    except (LookupError, TypeError, AttributeError):
        raise location.error(
            "this version of the lock is read together with the [tool.poetry.dependencies] of its project,"
            " which are not beside it",
            hint=_HINT,
        ) from None


def _entries(entry: Any) -> Iterable[Any]:
    return entry if isinstance(entry, list) else [entry]


def _is_optional(entry: Any) -> bool:
    return all(isinstance(part, dict) and part.get("optional") for part in _entries(entry))


def _extras_of(entry: Any) -> tuple[str, ...]:
    return tuple(str(extra) for part in _entries(entry) if isinstance(part, dict) for extra in part.get("extras", ()))


def _dependencies(package: Mapping[str, Any], extra: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names and extras of what a package needs with one of its extras, or without any; markers of systems stay open."""
    for name, entry in package.get("dependencies", {}).items():
        markers = [str(part.get("markers", "")) if isinstance(part, dict) else "" for part in _entries(entry)]
        if any(_needs(marker, extra) for marker in markers):
            yield canonicalize_name(name), _extras_of(entry)


def _needs(marker: str, extra: str) -> bool:
    if "extra" not in marker:
        return not extra
    try:
        return bool(extra) and Marker(marker).evaluate({"extra": extra})
    except InvalidMarker:
        return True


def poetry_range(text: str) -> str:
    """A range of Python versions in Poetry's syntax as version specifiers; alternatives are separated by ``|``.

    >>> poetry_range("^3.8"), poetry_range("~3.9 || >=3.11,<3.13"), poetry_range("3.10.*")
    ('>=3.8,<4', '>=3.9,<3.10|>=3.11,<3.13', '==3.10.*')
    """
    found = []
    for alternative in re.split(r"\|\|?", text):
        parts = re.findall(r"[\^~<>=!]*\s*[\w.*+]+", alternative)
        if re.sub(r"[\s,]", "", alternative) != re.sub(r"\s", "", "".join(parts)):
            raise ValueError(f"{text!r} is not a range")
        found.append(",".join(filter(None, (_specifier(part) for part in parts))))
    return "" if "" in found else "|".join(found)


def _specifier(text: str) -> str:
    operator, version = re.fullmatch(r"([\^~<>=!]*)\s*(.+)", text.strip()).groups()  # type: ignore[union-attr]
    if version == "*":
        return ""
    if operator not in ("^", "~"):
        bare = version.removesuffix(".*")
        return f"=={bare}.*" if operator in ("", "=", "==") else f"{operator}{bare if operator != '!=' else version}"
    numbers = [int(part) for part in version.split(".")]
    kept = 1 if operator == "^" or len(numbers) == 1 else 2
    limit = [*numbers[: kept - 1], numbers[kept - 1] + 1]
    return f">={version},<{'.'.join(map(str, limit))}"
