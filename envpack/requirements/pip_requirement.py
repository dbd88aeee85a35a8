"""One requirement of pip: a name with a version range, a wheel, or a project's folder; and its markers (PEP 508)."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envpack.requirements.location import CREDENTIALS_HINT, file_name, is_http, is_url, local_path
from envpack.requirements.locked_packages import parse_wheel_name
from envpack.requirements.target import NEWEST_PATCH, Target, marker_environment
from envpack.support.bounded_reading import parse_toml, read_text
from envpack.support.errors import InputError
from envpack.support.redaction import has_secret
from envpack.support.tables import Location

_OF_PYTHON = ("python_version", "python_full_version", "implementation_version")
_OF_MACHINE = ("platform_release", "platform_version")  # nothing is known about the machine that runs the server


def reduced_marker(text: str, target: Target, extras: Collection[str] = ()) -> str | None:
    """A marker without the terms that extras and a target decide; ``""`` if it is true, ``None`` if false."""
    if not text:
        return ""
    found = _reduced(Marker(text)._markers, target, frozenset(extras))  # noqa: SLF001 - the library has no public terms
    return None if found is False else "" if found is True else found


def _reduced(node: Any, target: Target, extras: frozenset[str]) -> bool | str:
    """The value of a term, or of terms with ``and`` and ``or`` between them; their text if it is open."""
    if isinstance(node, tuple):
        left, operator, right = (part.serialize() for part in node)  # values are in quotes
        return _decided((left, operator, right), target, extras)
    groups: list[list[bool | str]] = [[]]
    for part in node:
        if part == "or":
            groups.append([])
        elif part != "and":
            groups[-1].append(_reduced(part, target, extras))
    alternatives = []
    for terms in groups:
        if False in terms:
            continue
        still_open = [term for term in terms if isinstance(term, str)]
        if not still_open:
            return True
        several = len(still_open) > 1
        alternatives.append(" and ".join(f"({term})" if several and " or " in term else term for term in still_open))
    return " or ".join(dict.fromkeys(alternatives)) or False


@functools.lru_cache(maxsize=4096)
def _decided(term: tuple[str, str, str], target: Target, extras: frozenset[str]) -> bool | str:
    text = " ".join(term)
    if "extra" in term:
        results = (_evaluated(text, {"extra": extra}) for extra in extras)
        return all(results) if term[1] in ("!=", "not in") else any(results)
    if set(term).intersection(_OF_MACHINE if target.python else (*_OF_MACHINE, *_OF_PYTHON)):
        return text
    try:
        found = {_evaluated(text, environment) for environment in _environments(target)}
    except ValueError:  # a comparison without meaning, which the resolver reports
        return text
    return found.pop() if len(found) == 1 else text


@functools.lru_cache
def _environments(target: Target) -> tuple[dict[str, str], ...]:
    """The values of markers for the first and the newest patch of the target's Python; for any if it is unknown."""
    minor = target.minor or "3.0"
    versions = [target.python] if target.python.count(".") == 2 else [f"{minor}.0", f"{minor}.{NEWEST_PATCH}"]
    return tuple(marker_environment(replace(target, python=version)) for version in versions)


def _evaluated(text: str, environment: dict[str, str]) -> bool:
    return Marker(text).evaluate(environment)


_VCS = re.compile(r"(?:^|@\s*)(?:(?:git|hg|svn|bzr)(?:\+|://)|git@)", re.IGNORECASE)
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?P<extras>\[[^\]]*\])?\s*@\s*(?P<place>[^;]+?)$")
_EXTRAS = re.compile(r"(?P<place>.+?)(?P<extras>\[[^\]/]*\])$")
_OF_CONDA = re.compile(r"(?P<name>[\w.-]+)==?(?P<version>[\w.*!+]+)(?P<build>=[\w.]+)?")
# Rows of the tables that pip and conda print: name and version, and of conda the build.
_ROW = re.compile(r"(?P<name>[\w.-]{1,200})\s{1,200}(?P<version>\d[\w.!+]{0,200})(?P<build>\s{1,200}\w.{0,300})?")
_HEAD = re.compile(r"Package\s{1,200}Version\b.{0,300}")
# Folders of the machines that build conda's packages, and the folder of conda-build on any machine.
_CONDA_BUILD_FOLDER = re.compile(
    r"/(?:feedstock_root|conda-bld|croots?|ci_[a-z]*[0-9]+)/|^/(?:opt/concourse|tmp/build/80754af9|home/conda)/"
    r"|^/home/task_[0-9]+/|_[0-9]+/work(?:/|$)"
)
_LONGEST = 4096  # characters of a requirement without its hashes; the patterns of pip's libraries need the square
_CHANNEL = re.compile(r"[\w./-]{1,200}::(?P<name>[\w.-]{1,200})")
_HINT = "write it like numpy<2, each on a line of its own"


@dataclass(frozen=True)
class PipLine:
    """A line of a requirements file."""

    location: Location  # relative paths are resolved against the folder of its file
    quoted: str  # the line for an error message, without secrets

    @property
    def folder(self) -> Path:
        return self.location.path.parent.absolute()

    def path_missing(self, written: str) -> InputError:
        hint = f"the path is relative to the folder of {self.location.path.name}"
        if written.startswith("/") or is_url(written):
            hint = f"the path is of another machine: name a copy beside {self.location.path.name}, or a release"
        if re.match(r"[^\s/]+\s", written):  # a row of a table, or a line of another kind of file
            hint = _hint(written, self.location.path)
            return self.location.error(f"{self.quoted} is neither a requirement nor a file", hint=hint)
        return self.location.error(f"{self.quoted}: no such file or folder", hint=hint)


@dataclass(frozen=True)
class Project:
    """A folder that a wheel can be built from."""

    folder: Path  # absolute
    extras_requirement: str = ""  # a requirement for its extras, for example "mylib[gpu]"; "" without extras


def check_length(text: str, line: PipLine) -> None:
    """Check that a requirement has a length that can be read in a short time."""
    if len(text) > _LONGEST:
        raise line.location.error(
            f"{line.quoted} has {len(text)} characters, more than {_LONGEST}", hint="no requirement is that long"
        )


def read_requirement(text: str, line: PipLine) -> str | Project:
    """A requirement as PEP 508 writes it, without options, a local wheel as ``name @ file:///…``; or a project."""
    check_length(text, line)
    body, marker = _split_marker(text)
    if _VCS.search(body):
        raise line.location.error(
            f"{line.quoted} is in version control, which envpack does not build from",
            hint="build a wheel (pip wheel 'git+https://…') and name the wheel, or clone it and name the folder",
        )
    if in_channel := _CHANNEL.match(body):
        hint = f"write {in_channel['name']} for pip's package, or list it under dependencies: of an environment.yml"
        raise line.location.error(f"{line.quoted} names a conda channel", hint=hint)
    if named := _NAMED.match(body):
        return _read_place(named["place"], named["name"], named["extras"] or "", marker, line)
    if is_url(body) or "/" in body or body.startswith(".") or re.search(r"\.whl(\[|$)", body):
        with_extras = _EXTRAS.match(body)
        place, extras = (with_extras["place"], with_extras["extras"]) if with_extras else (body, "")
        return _read_place(place, "", extras, marker, line)
    return _parse(text, line)


def _split_marker(text: str) -> tuple[str, str]:
    """Split at the semicolon before the marker; a URL can contain semicolons, so there a space must be next to it."""
    match = re.search(r"\s;|;\s", text) if "://" in text else re.search(";", text)
    return (text[: match.start()].strip(), text[match.end() :].strip()) if match else (text.strip(), "")


def _parse(text: str, line: PipLine) -> str:
    try:
        requirement = Requirement(text)
        for specifier in requirement.specifier:
            Version(specifier.version.removesuffix(".*"))  # after === any text is a specifier, and uv reads versions
        return str(requirement)
    except (InvalidRequirement, InvalidVersion) as error:
        reason = str(error).splitlines()[0]
        hint = _hint(text, line.location.path)
        raise line.location.error(f"{line.quoted} is not a requirement: {reason}", hint=hint) from error
    except RecursionError:
        raise line.location.error(f"{line.quoted}: its marker is nested too deeply", hint=_HINT) from None


def _hint(text: str, file: Path) -> str:
    """How to write what is not a requirement, if it is one of conda, or what pip or conda prints for people."""
    if _HEAD.fullmatch(text.strip()):
        return "the table of pip list is no requirements file: pip freeze > requirements.txt"
    conda = _OF_CONDA.fullmatch(text.strip()) or _ROW.fullmatch(text.strip())
    if not conda:
        return _HINT
    if conda["build"] and file.suffix in (".yml", ".yaml"):
        return f"move it from pip: to dependencies:, or write {conda['name']}=={conda['version']} for that of an index"
    if conda["build"]:
        return "a list of conda is no requirements file: conda env export > environment.yml, and remove this file"
    fixed = f"{conda['name']}=={conda['version']}"
    return _HINT if text.strip() == fixed else f"write {fixed}"


def _read_place(place: str, name: str, extras: str, marker: str, line: PipLine) -> str | Project:
    if has_secret(place):
        raise line.location.error(f"{line.quoted} contains a password or a token", hint=CREDENTIALS_HINT)
    url_or_path, _, fragment = place.partition("#") if is_url(place) else (place, "", "")
    path = local_path(url_or_path, line.folder)
    if name and path is not None and not path.exists() and _CONDA_BUILD_FOLDER.search(str(path)):
        raise line.location.error(
            f"{line.quoted} names a folder in which conda built the package, and which no other machine has",
            hint=f"write {name}, or {name}==VERSION; pip list --format=freeze writes versions",
        )
    if path is not None and path.is_dir():
        if marker:
            raise line.location.error(
                f"{line.quoted}: a folder cannot have a marker", hint="remove the text after the semicolon"
            )
        return _read_project(path, name, extras, line)
    wheel = _wheel_url(url_or_path, path, line)
    package = parse_wheel_name(file_name(wheel), line.location).name
    if name and canonicalize_name(name) != package:
        raise line.location.error(f"{line.quoted}: the wheel's package is {package}", hint="use the same name for both")
    url = f"{wheel}#{fragment}" if fragment else wheel
    return _parse(f"{name or package}{extras} @ {url}" + (f" ; {marker}" if marker else ""), line)


def _wheel_url(url_or_path: str, path: Path | None, line: PipLine) -> str:
    """The URL of a wheel; a local wheel must exist, a remote one is not looked up."""
    if path is None and not is_http(url_or_path):
        raise line.location.error(f"{line.quoted}: neither an http(s) URL nor a local file", hint=_HINT)
    if path is not None and not path.is_file():
        raise line.path_missing(url_or_path)
    name = file_name(url_or_path) if path is None else path.name
    if not name.endswith(".whl"):
        raise line.location.error(
            f"{line.quoted} is not a wheel, and envpack installs only wheels",
            hint="build one with: pip wheel --no-deps FILE; or unpack it and name the folder",
        )
    if not parse_wheel_name(name, line.location).can_be_for_linux:
        raise line.location.error(f"{line.quoted} is a wheel for another system", hint="name one for Linux")
    return url_or_path if path is None else path.as_uri()


def read_editable(text: str, line: PipLine) -> Project:
    """Read the value of ``-e``: a folder, optionally with extras."""
    project = read_requirement(text if is_url(text) or "/" in text else f"./{text}", line)
    if not isinstance(project, Project):
        raise line.location.error(f"{line.quoted}: only a folder can be editable", hint="name it without -e")
    return project


def _read_project(folder: Path, name: str, extras: str, line: PipLine) -> Project:
    if not any((folder / file).is_file() for file in ("pyproject.toml", "setup.py")):
        raise line.location.error(
            f"{line.quoted}: the folder has no Python project", hint="it must have a pyproject.toml or a setup.py"
        )
    if not extras.strip("[] "):
        return Project(folder)
    name = name or said_by(folder, "name")
    if not name:
        raise line.location.error(
            f"{line.quoted}: extras need the name of this project, which is unknown until it is built",
            hint=f"write NAME{extras} @ file:///… with the name of the project",
        )
    return Project(folder, _parse(f"{name}{extras}", line))


def said_by(project: Path, key: str) -> str:
    """What a project in a folder says under a key of ``[project]``, ``""`` if nothing can be read."""
    try:
        content = parse_toml(read_text(project / "pyproject.toml"))
        return str(content["project"][key])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
