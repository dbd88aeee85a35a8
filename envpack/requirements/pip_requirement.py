"""One requirement of pip: a name with a range, or a wheel, or the folder of a project."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envpack.requirements.places import CREDENTIALS_HINT, file_name, is_http, is_url, path_of
from envpack.requirements.problem import Location
from envpack.requirements.wheel_file import parse_wheel_name
from envpack.support.redaction import has_secret

_VCS = re.compile(r"(?:^|@\s*)(?:git|hg|svn|bzr)\+", re.IGNORECASE)
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?P<extras>\[[^\]]*\])?\s*@\s*(?P<place>[^;]+?)$")
_EXTRAS = re.compile(r"(?P<place>.+?)(?P<extras>\[[^\]/]*\])$")
_EXAMPLE = "write it like numpy<2"


@dataclass(frozen=True)
class PipLine:
    """A line of a requirements file.

    Attributes:
        spot: where it is; relative paths count from that file.
        said: how an error names it, without secrets.
    """

    spot: Location
    said: str

    @property
    def folder(self) -> Path:
        """Where relative paths count from."""
        return self.spot.path.parent.absolute()


@dataclass(frozen=True)
class Project:
    """A folder that a wheel can be built from, and a requirement for its extras, ``""`` without any."""

    folder: Path
    extras: str = ""


def read_requirement(text: str, line: PipLine) -> str | Project:
    """Read a requirement, the options behind it left out.

    Returns:
        the requirement as PEP 508 writes it, a local wheel as ``name @ file:///…``; or a project.

    Raises:
        InputError: it is none, or is one that envpack does not install, such as a repository of git.

    """
    body, marker = _split_marker(text)
    if _VCS.search(body):
        raise line.spot.error(
            f"{line.said} is in version control, which envpack does not build from",
            hint="build a wheel (pip wheel 'git+https://…') and name the wheel, or clone it and name the folder",
        )
    named = _NAMED.match(body)
    if named:
        return _read_place(named["place"], named["name"], named["extras"] or "", marker, line)
    if is_url(body) or "/" in body or body.startswith(".") or re.search(r"\.whl(\[|$)", body):
        with_extras = _EXTRAS.match(body)
        place, extras = (with_extras["place"], with_extras["extras"]) if with_extras else (body, "")
        return _read_place(place, "", extras, marker, line)
    return _parsed(text, line)


def _split_marker(text: str) -> tuple[str, str]:
    """The marker begins behind a semicolon; in a URL, which may hold one, only if a space is beside it."""
    match = re.search(r"\s;|;\s", text) if "://" in text else re.search(";", text)
    return (text[: match.start()].strip(), text[match.end() :].strip()) if match else (text.strip(), "")


def _parsed(text: str, line: PipLine) -> str:
    try:
        return str(Requirement(text))
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise line.spot.error(f"{line.said} is not a requirement: {reason}", hint=_EXAMPLE) from error


def _read_place(place: str, name: str, extras: str, marker: str, line: PipLine) -> str | Project:
    if has_secret(place):
        raise line.spot.error(f"{line.said} carries a password or a token", hint=CREDENTIALS_HINT)
    bare, _, fragment = place.partition("#") if is_url(place) else (place, "", "")
    path = path_of(bare, line.folder)
    if path is not None and path.is_dir():
        if marker:
            raise line.spot.error(f"{line.said}: a folder takes no marker", hint="remove what is behind the semicolon")
        return read_project(path, name, extras, line)
    wheel = _wheel_url(bare, path, line)
    package = parse_wheel_name(file_name(wheel), line.spot).name
    if name and canonicalize_name(name) != package:
        raise line.spot.error(f"{line.said}: the wheel is called {package}", hint="give both the same name")
    url = f"{wheel}#{fragment}" if fragment else wheel
    return _parsed(f"{name or package}{extras} @ {url}" + (f" ; {marker}" if marker else ""), line)


def _wheel_url(place: str, path: Path | None, line: PipLine) -> str:
    """The URL of a wheel that is there, as far as can be said without the network."""
    if path is None and not is_http(place):
        raise line.spot.error(f"{line.said}: neither http(s) nor a local file", hint=_EXAMPLE)
    name = file_name(place) if path is None else path.name
    if path is not None and not path.is_file():
        raise line.spot.error(
            f"{line.said}: nothing is there", hint=f"the path counts from the folder of {line.spot.path.name}"
        )
    if not name.endswith(".whl"):
        raise line.spot.error(
            f"{line.said} is not a wheel, and envpack installs wheels only",
            hint="build one with: pip wheel --no-deps FILE; or unpack it and name the folder",
        )
    if not parse_wheel_name(name, line.spot).can_be_for_linux:
        raise line.spot.error(f"{line.said} is a wheel for another system", hint="name one for Linux")
    return place if path is None else path.as_uri()


def read_editable(text: str, line: PipLine) -> Project:
    """Read what stands behind ``-e``: a folder, perhaps with extras.

    Raises:
        InputError: it is no folder of a project.

    """
    found = read_requirement(text if is_url(text) or "/" in text else f"./{text}", line)
    if not isinstance(found, Project):
        raise line.spot.error(f"{line.said}: only a folder can be editable", hint="name it without -e")
    return found


def read_project(folder: Path, name: str, extras: str, line: PipLine) -> Project:
    """A folder as a project; its extras become a requirement, for which its name must be known.

    Raises:
        InputError: it holds no project, or its name cannot be told.

    """
    if not any((folder / file).is_file() for file in ("pyproject.toml", "setup.py")):
        raise line.spot.error(
            f"{line.said}: the folder holds no Python project", hint="it must have a pyproject.toml or a setup.py"
        )
    if not extras.strip("[] "):
        return Project(folder)
    name = name or _project_name(folder)
    if not name:
        raise line.spot.error(
            f"{line.said}: the name of this project cannot be told without building it, and extras need it",
            hint=f"write NAME{extras} @ file:///… with the name of the project",
        )
    return Project(folder, _parsed(f"{name}{extras}", line))


def _project_name(folder: Path) -> str:
    try:
        content = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        return str(content["project"]["name"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""
