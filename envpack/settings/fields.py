"""Rows of the table of settings: what a setting is called, where it may be said, and what it means.

Each has a kind of values: how envpack.toml and the command line write them.
"""

from __future__ import annotations

import dataclasses
import enum
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from envpack.support.errors import UsageError
from envpack.support.folders import expand_home, shell_fault, whole_path

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,15})([bkmg]?)", re.IGNORECASE)
_LEAST_SIZE = 1 << 20  # bytes


class BadValueError(ValueError):
    """A value does not fit its kind; what is wrong with it, and how it is written."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(kw_only=True, eq=False, repr=False)  # what is left out costs `--help` time, as further classes would
class Kind:
    """A kind of values; this one is text. It has the attributes of all."""

    form: ClassVar[str] = "text"  # its name, by which options and tables are made of it
    in_toml: ClassVar[str] = '"{}"'  # how envpack.toml has the example
    example: str = ""  # a value as envpack.toml has it
    metavar: str = ""  # what --help calls it
    values: tuple[str, ...] = ()  # of a `Choice`, the texts
    also: Callable[[str], str] = str  # of a `Choice`, turns other spellings into one of them
    is_folder: bool = True  # of a `Place`, whether a file is refused
    has_paths: bool = False  # of `Texts`, whether one that begins with ".", "/" or "~" is a path; it becomes an address
    least: int = 0  # of a `Number`, the smallest
    most: int = 0  # of a `Number`, the largest

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        """A value of envpack.toml; relative paths start at that file. Raises `BadValueError`."""
        del file
        if not isinstance(value, str):
            raise self.refused(key, place, "must be text in quotes")
        return value

    def parse(self, word: str) -> object:
        """What a word of the command line means, as envpack.toml would have it."""
        return word

    def written(self, value: object) -> object:
        """A value that is read, as envpack.toml would have it; another one as it is."""
        return value

    def refused(self, key: str, place: str, what: str) -> BadValueError:
        example = f"{key} = {self.in_toml.format(self.example)}"
        if place.startswith("--"):
            example = f"{f'--set {key}=' if place == '--set' else f'{place} '}{self.example or 'true'}"
        return BadValueError(f"{key} in {place} {what}", f"write it like {example}")


class OnServer(Kind):
    """The path of a folder on a server."""

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        text = str(super().read(key, value, file, place))
        if text and not text.startswith("/"):
            raise self.refused(key, place, "must begin with /")
        if unfit := shell_fault(text):
            raise self.refused(key, place, unfit)
        return text and f"/{posixpath.normpath(text).lstrip('/')}"


class Choice(Kind):
    """One of a few texts."""

    form = "choice"

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        text = self.also(str(super().read(key, value, file, place)))
        if text and text not in self.values:
            raise BadValueError(f"unknown {key} {text!r} in {place}", f"known: {', '.join(self.values)}")
        return text


class Texts(Kind):
    """Several texts; on the command line by repeating the option."""

    form = "texts"
    in_toml = '["{}"]'

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
            raise self.refused(key, place, "must be a list of texts")
        return tuple(
            whole_path(file.parent / expand_home(entry, str(file))).as_uri()
            if self.has_paths and entry.startswith((".", "/", "~"))
            else entry
            for entry in value
        )

    def parse(self, word: str) -> object:
        return [word]

    def written(self, value: object) -> object:
        return list(value) if isinstance(value, tuple) else value


class Flag(Kind):
    """True or false."""

    form = "flag"
    in_toml = "true, without quotes"

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        del file
        if not isinstance(value, bool):
            raise self.refused(key, place, "must be true or false")
        return value

    def parse(self, word: str) -> object:
        return {"true": True, "yes": True, "false": False, "no": False}.get(word, word)


class Place(Kind):
    """The path of a file or folder; ``~`` is a home folder."""

    form = "place"

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        text = str(super().read(key, value, file, place))
        if not text:
            return None
        path = file.parent / expand_home(text, str(file))
        # The last part may be a link, whose name tells the format.
        return path if path.name == ".." else whole_path(path.parent) / path.name

    def written(self, value: object) -> object:
        return str(value) if isinstance(value, Path) else value


class Number(Kind):
    """A whole number from ``least`` to ``most``."""

    form = "number"
    in_toml = "{}"

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        del file
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise self.refused(key, place, f"must be a number from {self.least} to {self.most}, not {value!r}")
        return value

    def parse(self, word: str) -> object:
        return int(word) if re.fullmatch(r"-?[0-9]{1,15}", word) else word


class Size(Kind):
    """A number of bytes, written as Docker's options are: a number and b, k, m or g."""

    form = "size"

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        match = _SIZE.fullmatch(str(super().read(key, value, file, place)))
        size = int(match[1]) * _UNITS[match[2].lower()] if match else 0
        if size < _LEAST_SIZE:  # as of a number without its unit, which counts bytes
            raise self.refused(key, place, "is not a size such as 512m or 1g")
        return size

    def written(self, value: object) -> object:
        return str(value) if isinstance(value, int) else value


class Unsaid(enum.Enum):
    """The value of a setting that is not set; false like an empty one."""

    UNSAID = enum.auto()

    def __bool__(self) -> bool:
        return False


UNSAID = Unsaid.UNSAID


@dataclass(kw_only=True, eq=False, repr=False)
class Field:
    """One setting."""

    name: str  # its name in `envpack.settings.table.Settings`, as a key of envpack.toml and of ``--set``
    kind: Kind  # what its values are
    default: Any  # its value if it is not said
    help: str  # what it means, in a few words, for ``--help``
    otherwise: str = ""  # what holds if it is not said, for ``--help`` and the reference; the default, unless given
    explained: str = ""  # what the reference says instead of ``help``, as Markdown
    option: str = ""  # its option, ``""`` for ``--`` and the name
    has_option: tuple[str, ...] = ()  # the commands that have this option
    has_set: tuple[str, ...] = ()  # the commands in which only ``--set`` and envpack.toml reach it
    in_project: bool = True  # whether the top level of envpack.toml may say it
    in_model: bool = False  # whether the table of a model may say it
    adds: bool = False  # whether what is said in several places adds up; otherwise the nearest counts
    group: str = "Options"  # heading in ``--help``

    @property
    def flag(self) -> str:
        """The option, for example ``"--link-mode"``."""
        return self.option or f"--{self.name.replace('_', '-')}"

    def concerns(self, command: str) -> bool:
        return command in self.has_option or command in self.has_set

    def read_word(self, word: str, place: str) -> Any:
        """What a word of the command line says of it; paths start at the working folder. Raises `BadValueError`."""
        return self.kind.read(self.name, self.kind.parse(word), Path.cwd() / "envpack.toml", place)

    def read_value(self, value: object) -> Any:
        """What a program says of it: a value of this field, or one as envpack.toml has it. Raises `UsageError`."""
        try:
            return self.kind.read(self.name, self.kind.written(value), Path("envpack.toml"), "Settings")
        except BadValueError as fault:
            raise UsageError("usage", str(fault), fault.hint) from None


def setting(kind: Kind, help_text: str, *, has: str = "", has_set: str = "", **more: Any) -> Any:
    """A field of `envpack.settings.table.Settings`; words are names of commands, other arguments those of `Field`."""
    empty: dict[str, object] = {"texts": (), "flag": False, "text": ""}
    default = more.pop("default", empty.get(kind.form))
    more.setdefault("otherwise", str(default or ""))
    row = {"kind": kind, "default": default, "help": help_text, "has_option": tuple(has.split())}
    metadata = row | {"has_set": tuple(has_set.split())} | more
    return dataclasses.field(default=UNSAID, metadata=metadata)


def fields_of(table: Any) -> Mapping[str, Field]:
    """The rows of a dataclass whose fields are made by `setting`, by name."""
    return {field.name: Field(name=field.name, **field.metadata) for field in dataclasses.fields(table)}
