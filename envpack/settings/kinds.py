"""Kinds of values that a setting can have: how envpack.toml and the command line write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from envpack.support.folders import expand_home

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,15})([bkmg]?)", re.IGNORECASE)


class BadValueError(ValueError):
    """A value does not fit its kind; what is wrong with it, and how it is written."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of values; this one is text. It has the attributes of all, since further classes cost `--help` time."""

    form: ClassVar[str] = "text"  # its name, by which options and tables are made of it
    example: str = ""  # a value as envpack.toml has it
    metavar: str = ""  # what --help calls it
    values: tuple[str, ...] = ()  # of a `Choice`, the texts
    also: Callable[[str], str] = str  # of a `Choice`, turns other spellings into one of them
    is_folder: bool = True  # of a `Place`, whether a file is refused
    least: int = 0  # of a `Number`, the smallest
    most: int = 0  # of a `Number`, the largest

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        """A value of envpack.toml; relative paths start at that file. Raises `BadValueError`."""
        del file
        if not isinstance(value, str):
            raise BadValueError(f"{key} in {place} must be text in quotes", f'write it like {key} = "{self.example}"')
        return value

    def parse(self, word: str) -> object:
        """What a word of the command line means, as envpack.toml would have it."""
        return word


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

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        del file
        if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
            raise BadValueError(
                f"{key} in {place} must be a list of texts", f'write it like {key} = ["{self.example}"]'
            )
        return tuple(value)

    def parse(self, word: str) -> object:
        return [word]


class Flag(Kind):
    """True or false."""

    form = "flag"

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        del file
        if not isinstance(value, bool):
            raise BadValueError(
                f"{key} in {place} must be true or false", f"write it like {key} = true, without quotes"
            )
        return value

    def parse(self, word: str) -> object:
        return {"true": True, "yes": True, "false": False, "no": False}.get(word, word)


class Place(Kind):
    """The path of a file or folder; ``~`` is a home folder."""

    form = "place"

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        text = str(super().read(key, value, file, place))
        return file.parent / expand_home(text, str(file)) if text else None


class Number(Kind):
    """A whole number from ``least`` to ``most``."""

    form = "number"

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        del file
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise BadValueError(
                f"{key} in {place} must be a number from {self.least} to {self.most}, not {value!r}",
                f"write it like {key} = {self.example}",
            )
        return value

    def parse(self, word: str) -> object:
        return int(word) if re.fullmatch(r"-?[0-9]{1,15}", word) else word


class Size(Kind):
    """A number of bytes, written as Docker's options are: a number and b, k, m or g."""

    form = "size"

    def read(self, key: str, value: object, file: Path, place: str) -> Any:
        size = parse_size(str(super().read(key, value, file, place)))
        if size is None:
            raise BadValueError(
                f"{key} in {place} is not a size such as 512m or 1g", f'write it like {key} = "{self.example}"'
            )
        return size


def parse_size(text: str) -> int | None:
    """Bytes of a size such as ``"512m"``; None for another text."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _UNITS[match[2].lower()] if match else None
