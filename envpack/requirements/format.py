"""Read requirements files: each module in `envpack.requirements.formats` registers its readers here.

Those of other tools are refused.
"""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envpack.requirements import formats as modules
from envpack.requirements.location import decode, read_text
from envpack.requirements.model import Requirements
from envpack.requirements.target import Target
from envpack.support.bounded_reading import read_bytes
from envpack.support.errors import InputError
from envpack.support.tables import Location, Table, line_of, parse_toml, parse_yaml
from envpack.support.text import toml_key

_PIP_LINE = re.compile(
    r"^(?:[a-z0-9][\w.-]*+(?:\[[\w,. -]*\])?[ \t]*(?:[=~<>!]=|@[ \t])|-[er][ \t]|--[a-z])", re.I | re.M
)


@dataclass(frozen=True)
class Source:
    """A requirements file that is read for a target; ``choose`` selects a Python if the target has none."""

    path: Path
    text: str
    target: Target
    choose: Callable[[Requirements], str] | None = None

    @property
    def location(self) -> Location:
        return Location(self.path)

    def place(self, text: str) -> Location:
        return self.location.at(line_of(self.text, text))

    def places(self, pattern: str, *, start: int = 0) -> dict[str, Location]:
        """The first line of each text that the group of a pattern of lines matches, from a place of the file on."""
        found: dict[str, Location] = {}
        line = end = 0
        for match in re.compile(pattern, re.MULTILINE).finditer(self.text, max(start, 0)):
            line += self.text.count("\n", end, match.start(1))
            end = match.start(1)
            found.setdefault(match[1], self.location.at(line + 1))
        return found

    @functools.cached_property
    def package_places(self) -> dict[str, Location]:
        return self.places(r'^[ \t]*name = "([^"\n]*)"')

    @functools.cached_property
    def project(self) -> Source:
        path = self.path.with_name("pyproject.toml")
        return replace(self, path=path, text=read_text(path) if path.is_file() else "")

    @property
    def is_toml(self) -> bool:
        return self.path.suffix.lower() == ".toml"

    @functools.cached_property
    def is_yaml(self) -> bool:
        """Whether the name is that of a YAML file; a lock is one unless it has lines of pip, as Rye writes them."""
        if self.path.suffix == ".lock":
            return not _PIP_LINE.search(self.text)
        return self.path.suffix.lower() in (".yml", ".yaml")

    @functools.cached_property
    def toml(self) -> dict[str, Any]:
        """The content as TOML, whatever the name."""
        return parse_toml(self.text, self.location)

    @functools.cached_property
    def yaml(self) -> Table:
        """The content as YAML, whatever the name."""
        return parse_yaml(self.text, self.path)


Reader = Callable[[Source], Requirements]


@dataclass(frozen=True)
class Format:
    """A format, as `reads` describes it; the docstring of ``read`` is its row in docs/reference/requirements.md."""

    read: Reader
    names: tuple[str, ...]
    order: int
    recognises: Callable[[Source], bool] | None
    similar: re.Pattern[str] | None
    holds: Callable[[str, str], bool] | None


_found: list[Format] = []


def reads(
    *names: str,
    order: int,  # place in that search, and in the search by content
    # Whether a file of any name has this format; without it, the name alone decides.
    recognises: Callable[[Source], bool] | None = None,
    similar: str = "",  # a pattern of other names that are searched after all names
    # Whether a file with a name and a text holds requirements; without it, every one does.
    holds: Callable[[str, str], bool] | None = None,
) -> Callable[[Reader], Reader]:
    def register(read: Reader) -> Reader:
        pattern = re.compile(similar, re.IGNORECASE) if similar else None
        _found.append(Format(read, names, order, recognises, pattern, holds))
        return read

    return register


@functools.cache
def all_formats() -> tuple[Format, ...]:
    for module in pkgutil.iter_modules(modules.__path__, f"{modules.__name__}."):
        importlib.import_module(module.name)
    return tuple(sorted(_found, key=lambda found: found.order))


def read_requirements(
    path: Path | None,
    *,
    platform: str = "linux-64",
    python: str | Callable[[Requirements], str] = "",
    glibc: str = "2.35",
) -> Requirements:
    """Read a requirements file. Its name, and for YAML and lists its content, determines the format."""
    if path is None:
        return Requirements()
    target = Target(platform, python if isinstance(python, str) else "", glibc)
    source = Source(path, read_text(path), target, None if isinstance(python, str) else python)
    return _format(source).read(source)


def _format(source: Source) -> Format:
    for known in all_formats():
        if not known.recognises and source.path.name in known.names:
            return known
    for known in all_formats():
        if known.recognises and known.recognises(source):
            return known
    if source.is_toml:
        raise source.location.error("is neither a pyproject.toml nor a pylock.toml", hint="name one of these")
    raise source.location.error(
        "is not a lock of pixi or conda-lock", hint="name the lock, or the file it was resolved from"
    )


# Files of other tools that are not read, each with why, and the command that makes a file that is.
_CONVERSIONS = {
    "pixi.toml": ("pixi resolves it into a pixi.lock", "pixi lock"),
    "pdm.lock": (
        "PDM writes it out as a pylock.toml",
        "pdm export --format pylock --output pylock.toml",
    ),
    "Pipfile": ("pipenv resolves it into a Pipfile.lock", "pipenv lock"),
    "anaconda-project.yml": (
        "anaconda-project writes it out as an environment.yml",
        "anaconda-project export-env-spec environment.yml",
    ),
    "setup.py": (
        "it is a program, so its requirements cannot be read",
        "uv pip compile setup.py --output-file requirements.txt",
    ),
}


_PACKAGES = re.compile(
    r"^[ \t]*(?:packages|dependencies):[ \t]*(?:#.*)?(?:\n[ \t]*(?:#.*)?)*(?:- |\[[ \t]*[^\]\s])", re.M
)


@reads(
    *_CONVERSIONS,
    order=90,
    holds=lambda name, text: not name.startswith("anaconda-project") or _PACKAGES.search(text) is not None,
)
def refuse(source: Source) -> Requirements:
    """`pixi.toml`, `pdm.lock`, `Pipfile`, `anaconda-project.yml`, `setup.py`

    Read: nothing

    Refused: with the command that makes a file that is read: `pixi lock`, `pdm export`, `pipenv lock`,
    `anaconda-project export-env-spec`, `uv pip compile setup.py`
    """
    reason, command = _CONVERSIONS[source.path.name]
    raise source.location.error(f"{source.path.name} is not read: {reason}", hint=f"run in its folder: {command}")


_FOR_DEVELOPERS = re.compile(r"(?:^|[-_.])(?:dev|develop|development|tests?|testing|docs?|lint|build|ci)(?=[-_.])")
_MOST_BYTES = 1 << 20
_MOST_NAMED = 5


def find_requirements(model_folder: Path) -> Path | None:
    """The requirements file of a model: the first in its folder by the formats' names, else one with a similar name.

    It need not be readable: `read_requirements` refuses a pipe, a broken link, and formats of other tools. A
    ``pyproject.toml`` or ``setup.cfg`` with the settings of tools alone is none, nor is a YAML file without
    ``dependencies`` under another name than those of conda.
    """
    for known in all_formats():
        for file in (model_folder / name for name in known.names):
            if os.path.lexists(file) and _has_requirements(known, file):
                return file
    return _similar(model_folder)


def has_name_of_requirements(file: Path) -> bool:
    """Whether a file in a model's folder with this name may be its requirements."""
    return any(
        file.name in known.names or (known.similar and known.similar.fullmatch(file.name)) for known in all_formats()
    )


def _similar(folder: Path) -> Path | None:
    try:
        files = sorted(file for file in folder.iterdir() if file.is_file())
    except OSError:
        return None
    for known in all_formats():
        pattern = known.similar
        found = [file for file in files if pattern and pattern.fullmatch(file.name) and _has_requirements(known, file)]
        serving = [file for file in found if not _is_for_developers(file)]
        found = serving or found
        if len(found) > 1:
            names = ", ".join(file.name for file in found[:_MOST_NAMED])
            raise Location(folder).error(
                f"several files may hold the requirements: {names}",
                hint=f"name one: {naming(folder, f'{folder.name}/{found[0].name}')}",
            )
        if found:
            return found[0]
    return None


def _is_for_developers(file: Path) -> bool:
    return bool(_FOR_DEVELOPERS.search(file.name.lower()))


def _has_requirements(known: Format, file: Path) -> bool:
    """Whether a file whose name allows it holds requirements; one that cannot be read may, so that it is reported."""
    if not known.holds:
        return True
    try:
        return known.holds(file.name, decode(read_bytes(file, most=_MOST_BYTES)))
    except (OSError, ValueError):
        return file.name in known.names


def naming(model_folder: Path, file: str) -> str:
    """How a user names the requirements file of a model, in words; ``file`` is as envpack.toml has it."""
    place = model_folder.parent / "envpack.toml"
    if not file.startswith(f"{model_folder.name}/"):
        return f'write requirements = "{file}" at the top of {place}, for all models without requirements of their own'
    return f'write [models.{toml_key(model_folder.name)}] and requirements = "{file}" into {place}'


def unread_in(folder: Path) -> Path | None:
    """A requirements file that is not read unless envpack.toml names it: in another folder than a model's, or one of
    those for several purposes that a folder ``requirements`` has, like ``requirements/base.txt``.
    """
    files = sorted(file for end in ("txt", "in") for file in (folder / "requirements").glob(f"*.{end}"))
    try:
        found = find_requirements(folder)
    except InputError:
        return None
    if found and not found.is_dir():
        return found
    return next((file for file in files if not _is_for_developers(file)), None)
