"""Text and TOML files, and the values of YAML files, with errors that name the line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeAlias

from envpack.requirements.location import Location, quote
from envpack.support import bounded_reading

_MAX_BYTES = 32 << 20
HINT = "correct the file, or write it again with the tool that wrote it"

Value: TypeAlias = "str | YamlTable | YamlList | None"


def read_text(path: Path, *, named_at: Location | None = None) -> str:
    """Read a UTF-8 text file, with or without a byte order mark."""
    location = Location(path)
    try:
        if not path.exists():
            if named_at:
                raise named_at.error(
                    f"there is no file {path.name}", hint="the path is relative to the file that names it"
                )
            raise location.error("requirements file not found", hint="create it, or correct its name in envpack.toml")
        if not path.is_file():
            raise location.error("is not a file", hint="name a file, such as requirements.txt")
        if path.stat().st_size > _MAX_BYTES:
            raise location.error("is larger than 32 MB", hint="no list of requirements is; name another file")
        return bounded_reading.read_text(path, most=_MAX_BYTES, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise location.error(f"cannot be read: {reason}", hint="it must be a UTF-8 text file") from error


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Parse TOML; only syntax errors have a line, see `line_of` for others."""
    try:
        return bounded_reading.parse_toml(text)
    except ValueError as error:  # TOMLDecodeError, and invalid dates and numbers
        line = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        reason = str(error).removesuffix(line.group()) if line else str(error).splitlines()[0]
        raise Location(path, int(line[1]) if line else 0).error(f"not valid TOML: {reason}", hint=HINT) from error


def line_of(text: str, needle: str) -> int:
    """The number of the first line that contains ``needle``, 0 if none does."""
    position = text.find(needle) if needle else -1
    return text.count("\n", 0, position) + 1 if position >= 0 else 0


class YamlList:
    """A sequence: its values, each with its location."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.items: list[tuple[Value, Location]] = []


class YamlTable:
    """A mapping: its values by key, each with the location of the key.

    Each getter raises an `InputError` with the line if the value has another type.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self.values: dict[str, tuple[Value, Location]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str) -> tuple[Value, Location]:
        """A value and its location; ``None`` and the location of the table if the key is missing."""
        return self.values.get(key, (None, self.location))

    def text(self, key: str, default: str | None = None) -> str:
        """A text; an error if it is missing and there is no default."""
        value, location = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise location.error(f"{key} must be text" if key in self else f"has no {key}", hint=HINT)
        return value

    def number(self, key: str) -> int:
        """A whole number that is not negative; 0 if it is missing."""
        text = self.text(key, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise self.get(key)[1].error(f"{key} must be a number", hint=HINT)
        return int(text)

    def table(self, key: str) -> YamlTable:
        """A table; an empty one if it is missing."""
        value, location = self.get(key)
        if value is None:
            return YamlTable(location)
        if not isinstance(value, YamlTable):
            raise location.error(f"{key} must be a table", hint=HINT)
        return value

    def items(self, key: str) -> list[tuple[Value, Location]]:
        """The values of a list with their locations; empty if the list is missing."""
        value, location = self.get(key)
        if value is None:
            return []
        if not isinstance(value, YamlList):
            raise location.error(f"{key} must be a list", hint=HINT)
        return value.items

    def texts(self, key: str) -> list[tuple[str, Location]]:
        """The values of a list of texts with their locations."""
        found = []
        for value, location in self.items(key):
            if not isinstance(value, str):
                raise location.error(f"each entry of {key} must be text", hint=HINT)
            found.append((value, location))
        return found

    def tables(self, key: str) -> list[YamlTable]:
        """The values of a list of tables."""
        found = []
        for value, location in self.items(key):
            if not isinstance(value, YamlTable):
                raise location.error(f"each entry of {key} must be a table", hint=HINT)
            found.append(value)
        return found

    def refuse_unknown(self, known: set[str]) -> None:
        """Raise an error for the first key that is not in ``known``."""
        for key, (_, location) in self.values.items():
            if key not in known:
                raise location.error(f"unknown key {quote(key)}", hint=f"known: {', '.join(sorted(known))}")
