"""Text, TOML and YAML files with errors that name the line.

YAML is built from the parser's events instead of PyYAML's loaders for three reasons: every error can name its line;
plain scalars stay text, so ``python: 3.10`` is not 3.1; and nothing recurses, so no file can exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from envpack.requirements.location import Location, quote
from envpack.support import bounded_reading

_MAX_BYTES = 32 << 20
_MAX_DEPTH = 40
_NULL = {"", "~", "null", "Null", "NULL"}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HINT = "correct the file, or write it again with the tool that wrote it"

Value: TypeAlias = "str | YamlTable | YamlList | None"


def read_text(path: Path, *, named_at: Location | None = None) -> str:
    """Read a UTF-8 text file, with or without a byte order mark.

    Args:
        path: the file.
        named_at: the line that names the file; the error for a missing file points there.

    Raises:
        InputError: the file is missing, not a regular file, larger than 32 MB, or not UTF-8.
    """
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
    """Parse TOML; only syntax errors have a line, see `line_of` for others.

    Raises:
        InputError: the text is not TOML.
    """
    try:
        return bounded_reading.parse_toml(text)
    except ValueError as error:  # TOMLDecodeError, and invalid dates and numbers
        line = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        reason = str(error).removesuffix(line.group()) if line else str(error).splitlines()[0]
        raise Location(path, int(line[1]) if line else 0).error(f"not valid TOML: {reason}", hint=_HINT) from error


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
            raise location.error(f"{key} must be text" if key in self else f"has no {key}", hint=_HINT)
        return value

    def number(self, key: str) -> int:
        """A whole number that is not negative; 0 if it is missing."""
        text = self.text(key, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise self.get(key)[1].error(f"{key} must be a number", hint=_HINT)
        return int(text)

    def table(self, key: str) -> YamlTable:
        """A table; an empty one if it is missing."""
        value, location = self.get(key)
        if value is None:
            return YamlTable(location)
        if not isinstance(value, YamlTable):
            raise location.error(f"{key} must be a table", hint=_HINT)
        return value

    def items(self, key: str) -> list[tuple[Value, Location]]:
        """The values of a list with their locations; empty if the list is missing."""
        value, location = self.get(key)
        if value is None:
            return []
        if not isinstance(value, YamlList):
            raise location.error(f"{key} must be a list", hint=_HINT)
        return value.items

    def texts(self, key: str) -> list[tuple[str, Location]]:
        """The values of a list of texts with their locations."""
        found = []
        for value, location in self.items(key):
            if not isinstance(value, str):
                raise location.error(f"each entry of {key} must be text", hint=_HINT)
            found.append((value, location))
        return found

    def tables(self, key: str) -> list[YamlTable]:
        """The values of a list of tables."""
        found = []
        for value, location in self.items(key):
            if not isinstance(value, YamlTable):
                raise location.error(f"each entry of {key} must be a table", hint=_HINT)
            found.append(value)
        return found

    def refuse_unknown(self, known: set[str]) -> None:
        """Raise an error for the first key that is not in ``known``."""
        for key, (_, location) in self.values.items():
            if key not in known:
                raise location.error(f"unknown key {quote(key)}", hint=f"known: {', '.join(sorted(known))}")


def parse_yaml(text: str, path: Path) -> YamlTable:
    """Parse YAML whose top level is a table.

    Raises:
        InputError: the text is not YAML, is not a table, or has tags or several documents.
    """
    location = Location(path)
    try:
        value = _build(yaml.parse(text, Loader=_LOADER), location)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = quote(error.problem or "unknown").strip("'\"")
        raise location.at(mark.line + 1 if mark else 0).error(f"not valid YAML: {problem}", hint=_HINT) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise location.error("not valid YAML: it contains control characters", hint=_HINT) from error
    if not isinstance(value, YamlTable):
        raise location.error("must be a table, with lines like key: value", hint=_HINT)
    return value


class _Builder:
    """Assembles the values of a YAML stream from its events."""

    def __init__(self) -> None:
        self.root: Value = None
        self.open: list[YamlTable | YamlList] = []
        self.keys: list[tuple[str, Location] | None] = []  # for each open container: the key without a value yet
        self.anchors: dict[str, Value] = {}

    def put(self, value: Value, location: Location) -> None:
        if not self.open:
            self.root = value
            return
        container = self.open[-1]
        if isinstance(container, YamlList):
            container.items.append((value, location))
        elif key := self.keys[-1]:
            container.values[key[0]] = (value, key[1])
            self.keys[-1] = None
        elif not isinstance(value, str):
            raise location.error("a key must be text", hint=_HINT)
        elif value in container.values:
            raise location.error(f"the key {quote(value)} occurs twice", hint="remove one of them")
        else:
            self.keys[-1] = (value, location)

    def begin(self, container: YamlTable | YamlList) -> None:
        if len(self.open) >= _MAX_DEPTH:
            raise container.location.error("is nested too deeply", hint=_HINT)
        self.put(container, container.location)
        self.open.append(container)
        self.keys.append(None)

    def end(self) -> None:
        self.open.pop()
        self.keys.pop()


def _build(events: Iterator[yaml.Event], file: Location) -> Value:
    builder, documents = _Builder(), 0
    for event in events:
        location = file.at(event.start_mark.line + 1 if event.start_mark else 0)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise location.error("a second document begins here", hint="keep one of them")
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in builder.anchors:
                raise location.error(f"no anchor {quote(event.anchor or '')} before this line", hint=_HINT)
            builder.put(builder.anchors[event.anchor], location)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            builder.end()
        elif isinstance(event, yaml.NodeEvent):
            _put_node(builder, event, location)
    return builder.root


def _put_node(builder: _Builder, event: yaml.NodeEvent, location: Location) -> None:
    if getattr(event, "tag", None) not in (None, "!"):
        raise location.error("tags like !!int are not supported here", hint="remove the tag")
    if isinstance(event, yaml.ScalarEvent):
        value: Value = None if event.implicit[0] and event.value in _NULL else event.value
        builder.put(value, location)
    else:
        value = YamlTable(location) if isinstance(event, yaml.MappingStartEvent) else YamlList(location)
        builder.begin(value)
    if event.anchor:
        builder.anchors[event.anchor] = value
