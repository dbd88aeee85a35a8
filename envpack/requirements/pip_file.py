"""``requirements.txt``, and lists of the same lines in other files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from optparse import Values
from pathlib import Path
from typing import Any

import pip_requirements_parser as parser

from envpack.requirements.model import Requirements
from envpack.requirements.pip_requirement import PipLine, Project, read_editable, read_requirement
from envpack.requirements.places import is_url, path_of
from envpack.requirements.problem import Location, shown
from envpack.requirements.text_file import read_text
from envpack.support.errors import InputError

_MOST_NESTED = 50
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_HASH = re.compile(r"(?:sha256:[0-9a-fA-F]{64}|sha384:[0-9a-fA-F]{96}|sha512:[0-9a-fA-F]{128})")
_PLACES = {"index_url": "--index-url", "extra_index_urls": "--extra-index-url", "find_links": "--find-links"}
_WITH_VALUE = {"no_binary": "--no-binary", "only_binary": "--only-binary", "trusted_hosts": "--trusted-host"}
_FLAGS = {
    "no_index": "--no-index",
    "prefer_binary": "--prefer-binary",
    "pre": "--pre",
    "require_hashes": "--require-hashes",
}
_FILES = {"requirements": False, "constraints": True}
_KNOWN = {*_PLACES, *_WITH_VALUE, *_FLAGS, *_FILES, "editables"}
_OPTION_HINT = "remove it; docs/reference/requirements.md lists the options that are read"


class PipReader:
    """Collects what one file and the files that it names require."""

    def __init__(self) -> None:
        self.pip: list[str] = []
        self.constraints: list[str] = []
        self.options: list[str] = []
        self.projects: list[Path] = []
        self.files: list[Path] = []
        self._read: set[tuple[Path, bool]] = set()
        self._depth = 0

    def read_file(self, path: Path, *, constraint: bool = False, named_at: Location | None = None) -> None:
        """Read a file; one that was read already, in a circle or not, adds nothing.

        Args:
            path: the file.
            constraint: whether its requirements hold only for what others ask for.
            named_at: the line that names it.

        Raises:
            InputError: it, or a file that it names, cannot be read or holds something that envpack does not take.

        """
        if (path.resolve(), constraint) in self._read:
            return
        self._read.add((path.resolve(), constraint))
        if named_at and self._depth >= _MOST_NESTED:
            raise named_at.error(f"more than {_MOST_NESTED} files name each other", hint="write them into one file")
        text = read_text(path, named_at=named_at)
        if path not in self.files:
            self.files.append(path)
        self._depth += 1
        self.read_lines(text, Location(path), constraint=constraint)
        self._depth -= 1

    def read_lines(self, text: str, spot: Location, *, constraint: bool = False) -> None:
        """Read lines that stand in a file, from the given line on.

        Raises:
            InputError: as `read_file`.

        """
        for number, raw in _lines(text):
            self._read_line(raw, spot.at(max(spot.line, 1) + number - 1), constraint)

    def requirements(self, **others: Any) -> Requirements:
        """All that was read, with the other fields of `Requirements` as they are given."""
        return Requirements(
            pip=tuple(self.pip),
            constraints=tuple(self.constraints),
            pip_options=tuple(self.options),
            projects=tuple(self.projects),
            **others,
        )

    def _read_line(self, raw: str, spot: Location, constraint: bool) -> None:
        text, values = _expanded(raw, spot)
        try:
            self._read_expanded(text, PipLine(spot, shown(raw)), constraint)
        except InputError as error:
            raise _without(values, error) from None

    def _read_expanded(self, text: str, line: PipLine, constraint: bool) -> None:
        try:
            requirement, values, words = parser.get_line_parser()(text)
        except (parser.OptionParsingError, ValueError) as error:
            raise line.spot.error(
                f"option {_option(line.said)} is not supported or not complete", hint=_OPTION_HINT
            ) from error
        given = {key: value for key, value in vars(values).items() if value}
        if requirement:
            self._add(requirement, given, line, constraint)
            return
        if words:
            raise line.spot.error(f"{line.said}: one word too many", hint="put a path with spaces in quotes")
        unknown = sorted(set(given) - _KNOWN)
        if unknown or not given:
            raise line.spot.error(f"option {_option(line.said)} is not supported", hint=_OPTION_HINT)
        self._take_options(values, line, constraint)

    def _add(self, text: str, options: dict[str, Any], line: PipLine, constraint: bool) -> None:
        hashes = options.pop("hashes", [])
        if options:
            raise line.spot.error(
                f"option {_option(line.said)} is not supported behind a requirement", hint=_OPTION_HINT
            )
        wrong = [one for one in hashes if not _HASH.fullmatch(one)]
        if wrong:
            raise line.spot.error(f"{shown(wrong[0])} is not a hash", hint="write it like --hash=sha256:64 digits")
        found = read_requirement(text, line)
        if isinstance(found, Project):
            if hashes:
                raise line.spot.error(f"{line.said}: a folder has no hash", hint="remove --hash")
            self._add_project(found, line, constraint)
            return
        if constraint and re.match(r"[\w.-]+\[", found):
            raise line.spot.error(f"{line.said}: a constraint has no extras", hint="remove what is in the brackets")
        where = self.constraints if constraint else self.pip
        where.append("".join([found, *(f" --hash={one}" for one in hashes)]))

    def _add_project(self, project: Project, line: PipLine, constraint: bool) -> None:
        if constraint:
            raise line.spot.error(f"{line.said}: a folder is no constraint", hint="move it into the requirements")
        if project.folder not in self.projects:
            self.projects.append(project.folder)
        if project.extras:
            self.pip.append(project.extras)

    def _take_options(self, values: Values, line: PipLine, constraint: bool) -> None:
        for key, as_constraint in _FILES.items():
            for name in getattr(values, key):
                self.read_file(_file(name, line), constraint=as_constraint, named_at=line.spot)
        for text in values.editables:
            self._add_project(read_editable(text, line), line, constraint)
        for key, option in _PLACES.items():
            self.options += [f"{option} {_place(one, line)}" for one in _several(values, key)]
        for key, option in _WITH_VALUE.items():
            self.options += [f"{option} {one}" for one in _several(values, key)]
        self.options += [option for key, option in _FLAGS.items() if getattr(values, key)]


def read_pip_file(path: Path) -> Requirements:
    """Read a requirements file of pip and the files that it names.

    Raises:
        InputError: one of them cannot be read or holds something that envpack does not take.

    """
    reader = PipReader()
    reader.read_file(path)
    return reader.requirements(source=path, files=tuple(reader.files))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; comments are gone and what ends in a backslash is joined."""
    for one in parser.preprocess(text):
        if not isinstance(one, parser.CommentLine):
            yield one.line_number, one.line


def _expanded(text: str, spot: Location) -> tuple[str, list[str]]:
    """The text with each ``${NAME}`` replaced by its value in the environment, as pip does it; and the values."""
    values: list[str] = []

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1], "")
        if not found:
            raise spot.error(f"{match[0]} is not set", hint=f"set the environment variable {match[1]}")
        values.append(found)
        return found

    return _VARIABLE.sub(value, text), values


def _without(values: list[str], error: InputError) -> InputError:
    """The same error without the values of variables, which are often secrets."""
    message, hint = error.message, error.hint
    for value in values:
        message, hint = message.replace(value, "***"), hint.replace(value, "***")
    return InputError(message, kind=error.kind, where=error.where, hint=hint)


def _option(text: str) -> str:
    """The first option of a line, without its value, which may be a secret."""
    words = (word for word in text.strip("'\"").split() if word.startswith("-"))
    return shown(re.split("[=:]", next(words, "-"))[0])


def _several(values: Values, key: str) -> list[str]:
    value = getattr(values, key)
    return value if isinstance(value, list) else [value] if value else []


def _file(name: str, line: PipLine) -> Path:
    path = path_of(name, line.folder)
    if path is None:
        raise line.spot.error(f"{line.said}: the file is not on this machine", hint="download it and name the copy")
    return path


def _place(value: str, line: PipLine) -> str:
    """An index or a list of links: a URL as it is, a path made absolute."""
    if is_url(value):
        return value
    path = path_of(value, line.folder)
    if path is None or not path.exists():
        raise line.spot.error(
            f"{line.said}: nothing is there", hint=f"the path counts from the folder of {line.spot.path.name}"
        )
    return str(path)
