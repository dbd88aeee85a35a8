"""``requirements.txt``, and lists of the same lines in other files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from optparse import Values
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pip_requirements_parser as parser
from packaging.utils import canonicalize_name

from envpack.requirements.format import Source, reads
from envpack.requirements.location import is_url, local_path, read_text
from envpack.requirements.model import Requirements
from envpack.requirements.pip_requirement import (
    PipLine,
    Project,
    check_length,
    read_editable,
    read_requirement,
    said_by,
)
from envpack.requirements.target import common_range, single_minor
from envpack.support.errors import InputError
from envpack.support.folders import real_path
from envpack.support.redaction import ENCODING_HINT, is_readable
from envpack.support.tables import Location, Table, parse_toml, quote, table_of

_LONGEST_LINE = 100_000  # characters; the hashes of a package with many wheels take 20,000
_MOST_LINES = 20_000  # of a file and those that it includes; each takes a part of a millisecond
_MAX_DEPTH = 50
# Locks write out the public index, which is none of the project's own: a mirror of the user must still replace it.
_PUBLIC = ("pypi.org", "pypi.python.org")
_MANY_BLANKS = re.compile(r"[^\S\n]{1001}")  # the pattern of pip's library for comments needs the square
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_HASH = re.compile(r"(?:sha256:[0-9a-fA-F]{64}|sha384:[0-9a-fA-F]{96}|sha512:[0-9a-fA-F]{128})")
# Attributes of the parsed options, each with the option that envpack writes.
_PLACE_OPTIONS = {"index_url": "--index-url", "extra_index_urls": "--extra-index-url", "find_links": "--find-links"}
_VALUE_OPTIONS = {"no_binary": "--no-binary", "only_binary": "--only-binary", "trusted_hosts": "--trusted-host"}
_FLAGS = {
    "no_index": "--no-index",
    "prefer_binary": "--prefer-binary",
    "pre": "--pre",
    "require_hashes": "--require-hashes",
}
_NESTED_FILES = {"requirements": False, "constraints": True}  # whether the file holds constraints
_KNOWN = {*_PLACE_OPTIONS, *_VALUE_OPTIONS, *_FLAGS, *_NESTED_FILES, "editables"}
_COMMAND = re.compile(r"[!%$]?\s*(?:\S*python[\d.]*\s+-m\s+)?(?:uv\s+)?pip[\d.]*\s+install\s")
_OWN_LINE_HINT = "write it on a line of its own, where it is for all requirements, and an index as --extra-index-url"
_OPTION_HINT = "remove it; docs/reference/requirements.md lists the supported options"


class PipReader:
    """Collects the requirements of a file and of the files that it includes."""

    def __init__(self) -> None:
        self.pip: list[str] = []
        self.constraints: list[str] = []
        self.options: list[str] = []
        self.projects: list[Path] = []
        self.files: list[Path] = []
        self.places: dict[str, str] = {}
        self.index_names: dict[str, str] = {}
        self._indexes: dict[str, str] = {}
        self.warnings: list[str] = []
        self._read: set[tuple[Path, bool]] = set()
        self._depth = self._count = 0

    def read_file(self, path: Path, *, constraint: bool = False, named_at: Location | None = None) -> None:
        """Read a file; a file that was read before, also in a circle, is skipped."""
        if (real_path(path), constraint) in self._read:
            return
        self._read.add((real_path(path), constraint))
        if named_at and self._depth >= _MAX_DEPTH:
            raise named_at.error(f"more than {_MAX_DEPTH} files include each other", hint="write them into one file")
        text = read_text(path, named_at=named_at)
        if path not in self.files:
            self.files.append(path)
        self._depth += 1
        self.read_lines(text, Location(path), constraint=constraint)
        self._depth -= 1

    def read_lines(self, text: str, location: Location, *, constraint: bool = False) -> None:
        """Read lines that begin at the given line of a file."""
        if blanks := _MANY_BLANKS.search(text):
            raise location.at(max(location.line, 1) + text.count("\n", 0, blanks.start())).error(
                "more than 1000 blanks follow each other", hint="remove them"
            )
        for number, line in _lines(text):
            self._count += 1
            if self._count > _MOST_LINES:
                raise location.at(max(location.line, 1) + number - 1).error(
                    f"more than {_MOST_LINES} lines of requirements", hint="no environment has that many packages"
                )
            self._read_line(line, location.at(max(location.line, 1) + number - 1), constraint)

    def take_from(self, address: str, package: str, location: Location, *, name: str = "") -> None:
        """Take a package from no other index than one, which may have a name under which uv has its account."""
        address = _checked(_expand_variables(address, location)[0], location)
        self._indexes[canonicalize_name(package)] = address
        self.places[f"--index-url {address}"] = str(location)
        self.index_names |= {address: name} if name else {}

    def requirements(
        self, path: Path, python_range: str = "", python_at: Location | None = None, **others: Any
    ) -> Requirements:
        """What was read of a file and those that it includes, with other fields of `Requirements` as given."""
        of_projects = {folder: said for folder in self.projects if (said := said_by(folder, "requires-python"))}
        with contextlib.suppress(ValueError):  # the resolver names a project that excludes the others
            python_range = common_range([python_range, *of_projects.values()])
            python_at = python_at or next((Location(folder / "pyproject.toml") for folder in of_projects), None)
        return Requirements(
            python=single_minor(python_range) if python_range else "",
            python_range=python_range,
            source=path,
            files=tuple(dict.fromkeys((path, *self.files))),
            pip=tuple(self.pip),
            constraints=tuple(self.constraints),
            pip_options=tuple(self.options),
            indexes=tuple(self._indexes.items()),
            index_names=self.index_names,
            projects=tuple(self.projects),
            places={**self.places, "python": str(python_at)} if python_at else dict(self.places),
            warnings=tuple(self.warnings),
            **others,
        )

    def _read_line(self, raw: str, location: Location, constraint: bool) -> None:
        if len(raw) > _LONGEST_LINE:
            raise location.error(
                f"{quote(raw)} has {len(raw)} characters, more than {_LONGEST_LINE}", hint="no requirement is that long"
            )
        check_length(raw.partition(" -")[0], PipLine(location, quote(raw)))
        if _COMMAND.match(raw):
            raise location.error(
                f"{quote(raw)} is a command, and no requirement",
                hint="write its packages without the command, and each option of pip, on lines of their own",
            )
        text, values = _expand_variables(raw, location)
        try:
            self._read_expanded(text, PipLine(location, quote(raw)), constraint)
        except InputError as error:
            raise _without_values(values, error) from None

    def _read_expanded(self, text: str, line: PipLine, constraint: bool) -> None:
        try:
            requirement, values, words = parser.get_line_parser()(text)
        except (parser.OptionParsingError, ValueError) as error:
            named = _NAMED_OPTION.search(str(error))
            option = quote(named[0]) if named else _option(text)
            raise line.location.error(f"option {option} is not supported or incomplete", hint=_OPTION_HINT) from error
        options = {key: value for key, value in vars(values).items() if value}
        if requirement and words:  # which pip ignores
            hint = "write each requirement on a line of its own"
            if line.location.path.suffix in (".yml", ".yaml"):  # YAML joins the lines of a text
                hint += ", and give all entries of the list the same indentation"
            raise line.location.error(f"{line.quoted}: one word too many", hint=hint)
        if requirement:
            if others := set(options) - {"hashes"}:
                raise line.location.error(
                    f"option {_option(text)} is not supported after a requirement",
                    hint=_OWN_LINE_HINT if others <= _KNOWN else _OPTION_HINT,
                )
            self._add(requirement, options.get("hashes", []), line, constraint)
            return
        if words:
            raise line.location.error(
                f"{_option(text)}: one word too many",  # of a password with a blank, the line would show a part
                hint="write a requirement on a line of its own, a path with spaces in quotes, and %20 in an address",
            )
        unknown = sorted(set(options) - _KNOWN)
        if unknown or not options:
            raise line.location.error(f"option {_option(text)} is not supported", hint=_OPTION_HINT)
        self._add_options(values, line, constraint)

    def _add(self, text: str, hashes: list[str], line: PipLine, constraint: bool) -> None:
        malformed = [digest for digest in hashes if not _HASH.fullmatch(digest)]
        if malformed:
            raise line.location.error(
                f"{quote(malformed[0])} is not a hash", hint="write it like --hash=sha256:64 digits"
            )
        requirement = read_requirement(text, line)
        if isinstance(requirement, Project):
            if hashes:
                raise line.location.error(f"{line.quoted}: a folder has no hash", hint="remove --hash")
            self._add_project(requirement, line, constraint)
            return
        if constraint and re.match(r"[\w.-]+\[", requirement):
            raise line.location.error(
                f"{line.quoted}: a constraint has no extras", hint="remove the brackets and their content"
            )
        destination = self.constraints if constraint else self.pip
        destination.append("".join([requirement, *(f" --hash={digest}" for digest in hashes)]))
        self.places[destination[-1]] = str(line.location)

    def _add_project(self, project: Project, line: PipLine, constraint: bool) -> None:
        if constraint:
            raise line.location.error(
                f"{line.quoted}: a folder cannot be a constraint", hint="move it into the requirements"
            )
        if project.folder not in self.projects:
            self.projects.append(project.folder)
        if project.extras_requirement:
            self.pip.append(project.extras_requirement)

    def _add_options(self, values: Values, line: PipLine, constraint: bool) -> None:
        for key, as_constraint in _NESTED_FILES.items():
            for name in getattr(values, key):
                self.read_file(_file(name, line), constraint=as_constraint, named_at=line.location)
        for text in values.editables:
            self._add_project(read_editable(text, line), line, constraint)
        for key, option in _PLACE_OPTIONS.items():
            for value in _values(values, key):
                self.options.append(f"{option} {_place(value, line)}")
                self.places[self.options[-1]] = str(line.location)
        for key, option in _VALUE_OPTIONS.items():
            self.options += [f"{option} {value}" for value in _values(values, key)]
        self.options += [option for key, option in _FLAGS.items() if getattr(values, key)]


def index_options(addresses: Sequence[str]) -> list[str]:
    public = [is_public(address) for address in addresses]
    if not addresses or all(public):
        return []
    others = [f"--extra-index-url {address}" for address in addresses[1:]]
    return others if public[0] else [f"--index-url {addresses[0]}", *others]


def is_public(address: str) -> bool:
    return urlsplit(address).hostname in _PUBLIC


@reads(
    "requirements.txt",
    "requirements.in",
    order=30,
    recognises=lambda source: not source.is_toml and not source.is_yaml,
    similar=r"(?:[\w.-]*[-_.])?requirements?(?:[-_.][\w.-]+)?\.(?:txt|in|lock|pip)",
)
def read_pip_file(source: Source) -> Requirements:
    """`requirements.txt` (pip)

    Read: names, markers, extras, hashes, `-r`, `-c`, wheels, projects, options; see [below](#requirementstxt)

    Refused: version control, source archives, other options
    """
    reader = PipReader()
    try:
        reader.read_file(source.path)
    except InputError as error:
        if source.path.suffix not in (".txt", ".in", ".lock"):
            error.hint += f"; {source.path.name} has the name of no other format, so it is read as a requirements.txt"
        raise
    if any(" --hash=" not in line for line in reader.pip):
        reader.warnings += _of_uv_alone(source, " ".join(reader.options))
    return reader.requirements(source.path)


def _of_uv_alone(source: Source, read: str) -> Iterator[str]:
    """Warnings about indexes that settings beside a file name, not the file: uv reads them for it, and pip does not."""
    for name in ("uv.toml", "pyproject.toml"):
        file = source.path.with_name(name)
        with contextlib.suppress(InputError):  # which uv reports
            addresses = _indexes(_settings_of_uv(file)) if file.is_file() else ()
            if any(not is_public(address) and address.rstrip("/") not in read for address in addresses):
                what = f"{file}: its indexes are not read with {source.path.name}, as by pip"
                yield f"{what}; for packages from there write --extra-index-url URL into {source.path.name}"


def _settings_of_uv(file: Path) -> Table:
    content = table_of(parse_toml(read_text(file), Location(file)), Location(file))
    return content if file.name == "uv.toml" else content.table("tool").table("uv")


def _indexes(uv: Table) -> list[str]:
    general = [index.text("url") for index in uv.tables("index") if index.text("explicit", "") != "true"]
    others = [text for text, _ in uv.texts("extra-index-url")]
    return [*general, *others, uv.text("index-url", "")]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without comments; lines that end in a backslash are joined with the next."""
    for line in parser.preprocess(text):
        if not isinstance(line, parser.CommentLine):
            yield line.line_number, line.line


def _expand_variables(text: str, location: Location) -> tuple[str, list[str]]:
    """Replace each ``${NAME}`` by its value in the environment, as pip does; also returns the values."""
    values: list[str] = []

    def expand(match: re.Match[str]) -> str:
        value = os.environ.get(match[1], "")
        if not value:
            raise location.error(f"{match[0]} is not set", hint=f"set the environment variable {match[1]}")
        values.append(value)
        return value

    return _VARIABLE.sub(expand, text), values


def _without_values(values: list[str], error: InputError) -> InputError:
    """The same error without the values of variables, which are often secrets."""
    message, hint = error.message, error.hint
    for value in values:
        message, hint = message.replace(value, "***"), hint.replace(value, "***")
    return InputError(error.kind, message, hint, error.where)


_NAMED_OPTION = re.compile(r"(?<=no such option: )-{1,2}[\w-]{1,60}|--[\w-]{1,60}(?= option requires)")


def _option(text: str) -> str:
    """The first option of a line that is no hash, without its value, which may be a secret."""
    words = [word for word in text.split() if word.startswith("-")]
    others = (word for word in words if not word.startswith("--hash"))
    return quote(re.split("[=:]", next(others, words[0] if words else "-"))[0])


def _values(values: Values, key: str) -> list[str]:
    value = getattr(values, key)
    return value if isinstance(value, list) else [value] if value else []


def _file(name: str, line: PipLine) -> Path:
    path = local_path(name, line.folder)
    if path is None:
        raise line.location.error(
            f"{line.quoted}: the file is not on this machine", hint="download it and name the copy"
        )
    return path


def _checked(address: str, location: Location) -> str:
    if not is_readable(address):
        raise location.error("the address of an index cannot be read", hint=ENCODING_HINT)
    return address


def _place(value: str, line: PipLine) -> str:
    """An index or a page of links: a URL unchanged, a path as ``file:///…``, in which uv reads any character."""
    if is_url(value):
        return _checked(value, line.location)
    path = local_path(value, line.folder)
    if path is None or not path.exists():
        raise line.path_missing(value)
    return path.as_uri()
