"""Tables in YAML, TOML and JSON files that know where each of their values is, for errors that name the line.

The values of YAML are built from the parser's events instead of PyYAML's loaders for three reasons: every error can
name its line; plain scalars stay text, so ``python: 3.10`` is not 3.1; and nothing recurses, so no file can exhaust the
stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from envpack.support import bounded_reading
from envpack.support.errors import InputError
from envpack.support.redaction import redact

if TYPE_CHECKING:
    import yaml

_MAX_QUOTE = 120  # characters
_MAX_DEPTH = 40
_TOO_DEEP = "is nested too deeply"
_PARSER_DEPTH = "nesting depth"  # of PyYAML 6.0.4 and newer, whose parser reads ahead and reaches its own limit first
_NULL = {"", "~", "null", "Null", "NULL"}
HINT = "correct the file, or write it again with the tool that wrote it"
_BLANK = re.compile(r"\{\{|\{%")  # of Jinja and others
_TEMPLATE = "this is a template: render it with the tool that it is for, and name the result"

Value: TypeAlias = "str | Table | List | None"
_Kind = TypeVar("_Kind", str, "Table")


@dataclass(frozen=True)
class Location:
    """A line of a file."""

    path: Path
    line: int = 0  # counted from 1, 0 if the format does not provide it
    kind: str = "bad-requirements"  # of the errors about it

    def at(self, line: int) -> Location:
        return replace(self, line=line)

    def error(self, message: str, *, hint: str) -> InputError:
        """An error about this line, for the caller to raise; one that shows a blank of a template is due to that."""
        return InputError(self.kind, message, _TEMPLATE if _BLANK.search(message) else hint, str(self))

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else str(self.path)


def quote(text: str) -> str:
    """A user's text for an error message: in quotes, on one line, cut to 120 characters, without secrets."""
    text = redact(text)
    return repr(text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…")


def parse_toml(text: str | bytes, location: Location, *, hint: str = HINT) -> dict[str, Any]:
    """Parse TOML; only syntax errors have a line, see `line_of` for others."""
    try:
        return bounded_reading.parse_toml(text if isinstance(text, str) else text.decode())
    except ValueError as error:  # TOMLDecodeError, and text that is not UTF-8, invalid dates and numbers
        line = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        reason = str(error).removesuffix(line.group()) if line else str(error).splitlines()[0]
        raise location.at(int(line[1]) if line else 0).error(f"not valid TOML: {reason}", hint=hint) from error


def line_of(text: str, needle: str) -> int:
    position = text.find(needle) if needle else -1
    return text.count("\n", 0, position) + 1 if position >= 0 else 0


class List:
    """A sequence: its values, each with its location."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.items: list[tuple[Value, Location]] = []


class Table:
    """A mapping: its values, each with the key's location, which the errors of getters name."""

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

    def table(self, key: str) -> Table:
        """A table; an empty one if it is missing."""
        value, location = self.get(key)
        if value is None:
            return Table(location)
        if not isinstance(value, Table):
            raise location.error(f"{key} must be a table", hint=HINT)
        return value

    def items(self, key: str) -> list[tuple[Value, Location]]:
        value, location = self.get(key)
        if value is None:
            return []
        if not isinstance(value, List):
            raise location.error(f"{key} must be a list", hint=HINT)
        return value.items

    def texts(self, key: str) -> list[tuple[str, Location]]:
        return list(self._each(key, str, "text"))

    def tables(self, key: str) -> list[Table]:
        return [table for table, _ in self._each(key, Table, "a table")]

    def _each(self, key: str, kind: type[_Kind], name: str) -> Iterator[tuple[_Kind, Location]]:
        for value, location in self.items(key):
            if not isinstance(value, kind):
                raise location.error(f"each entry of {key} must be {name}", hint=HINT)
            yield value, location

    def refuse_unknown(self, known: set[str]) -> None:
        """Raise an error for the first key that is not in ``known``."""
        for key, (_, location) in self.values.items():
            if key not in known:
                raise location.error(f"unknown key {quote(key)}", hint=f"known: {', '.join(sorted(known))}")


def table_of(content: Mapping[str, Any], location: Location) -> Table:
    """A table of TOML or JSON, whose values all have one location; numbers and truth values become text."""
    table = Table(location)
    for key, value in content.items():
        table.values[str(key)] = (_value_of(value, location, 1), location)
    return table


def _value_of(value: Any, location: Location, depth: int) -> Value:
    if depth > _MAX_DEPTH:
        raise location.error(_TOO_DEEP, hint=HINT)
    if isinstance(value, dict):
        table = Table(location)
        table.values = {str(key): (_value_of(item, location, depth + 1), location) for key, item in value.items()}
        return table
    if isinstance(value, list):
        found = List(location)
        found.items = [(_value_of(item, location, depth + 1), location) for item in value]
        return found
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def parse_yaml(text: str, path: Path, *, kind: str = "bad-requirements") -> Table:
    """Parse YAML whose top level is a table; errors about it, and about its values, are of a kind."""
    import yaml

    location = Location(path, kind=kind)
    try:
        value = _build(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), location)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = location.at(mark.line + 1 if mark else 0)
        if _PARSER_DEPTH in (error.problem or ""):
            raise place.error(_TOO_DEEP, hint=HINT) from error
        problem = quote(error.problem or "unknown").strip("'\"")
        lines = text.splitlines()
        line = lines[mark.line] if mark and mark.line < len(lines) else ""
        raise place.error(f"not valid YAML: {problem}", hint=_yaml_hint(line)) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise location.error("not valid YAML: it contains control characters", hint=HINT) from error
    if not isinstance(value, Table):
        raise location.error("must be a table, with lines like key: value", hint=HINT)
    return value


def _yaml_hint(line: str) -> str:
    if "\t" in line:
        return "replace the tabs of this line by blanks, which YAML requires for indentation"
    return _TEMPLATE if _BLANK.search(line) else HINT


class _Builder:
    """Assembles the values of a YAML stream from its events."""

    def __init__(self) -> None:
        self.root: Value = None
        self.open: list[Table | List] = []
        self.keys: list[tuple[str, Location] | None] = []  # for each open container: the key without a value yet
        self.anchors: dict[str, Value] = {}

    def put(self, value: Value, location: Location) -> None:
        if not self.open:
            self.root = value
            return
        container = self.open[-1]
        if isinstance(container, List):
            container.items.append((value, location))
        elif key := self.keys[-1]:
            container.values[key[0]] = (value, key[1])
            self.keys[-1] = None
        elif not isinstance(value, str):
            raise location.error("a key must be text", hint=_TEMPLATE if isinstance(value, Table) else HINT)
        elif value in container.values:
            raise location.error(f"the key {quote(value)} occurs twice", hint="remove one of them")
        else:
            self.keys[-1] = (value, location)

    def begin(self, container: Table | List) -> None:
        if len(self.open) >= _MAX_DEPTH:
            raise container.location.error(_TOO_DEEP, hint=HINT)
        self.put(container, container.location)
        self.open.append(container)
        self.keys.append(None)

    def end(self) -> None:
        self.open.pop()
        self.keys.pop()


def _build(events: Iterator[yaml.Event], file: Location) -> Value:
    import yaml

    builder, documents = _Builder(), 0
    for event in events:
        location = file.at(event.start_mark.line + 1 if event.start_mark else 0)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise location.error("a second document begins here", hint="keep one of them")
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in builder.anchors:
                raise location.error(f"no anchor {quote(event.anchor or '')} before this line", hint=HINT)
            builder.put(builder.anchors[event.anchor], location)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            builder.end()
        elif isinstance(event, yaml.NodeEvent):
            _put_node(builder, event, location)
    return builder.root


def _put_node(builder: _Builder, event: yaml.NodeEvent, location: Location) -> None:
    import yaml

    if getattr(event, "tag", None) not in (None, "!"):
        raise location.error("tags like !!int are not supported here", hint="remove the tag")
    if isinstance(event, yaml.ScalarEvent):
        value: Value = None if event.implicit[0] and event.value in _NULL else event.value
        builder.put(value, location)
    else:
        value = Table(location) if isinstance(event, yaml.MappingStartEvent) else List(location)
        builder.begin(value)
    if event.anchor:
        builder.anchors[event.anchor] = value
