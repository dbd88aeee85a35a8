"""YAML as tables, lists and text that know their line.

It is built from the parser's events and not by PyYAML's loaders for three reasons: every error can say its line; plain
scalars stay text, so ``python: 3.10`` is not 3.1; and nothing recurses, so no file can exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import yaml

from envpack.requirements.problem import Location, shown

_DEEPEST = 40
_NOTHING = {"", "~", "null", "Null", "NULL"}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HINT = "correct the file, or make it again with the tool that wrote it"

Value: TypeAlias = "str | YamlTable | YamlList | None"


class YamlList:
    """A sequence; `items` are its values with their places."""

    def __init__(self, spot: Location) -> None:
        self.spot = spot
        self.items: list[tuple[Value, Location]] = []


class YamlTable:
    """A mapping; the place of a value is that of its key.

    Each getter raises an `InputError` that says the line if the value has another type.
    """

    def __init__(self, spot: Location) -> None:
        self.spot = spot
        self.values: dict[str, tuple[Value, Location]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str) -> tuple[Value, Location]:
        """A value and its place; ``None`` and the place of the table if there is none."""
        return self.values.get(key, (None, self.spot))

    def text(self, key: str, default: str | None = None) -> str:
        """Text; an error if there is none and no default is given."""
        value, spot = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise spot.error(f"{key} must be text" if key in self else f"has no {key}", hint=_HINT)
        return value

    def number(self, key: str) -> int:
        """A whole number that is not negative; 0 if there is none."""
        text = self.text(key, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise self.get(key)[1].error(f"{key} must be a number", hint=_HINT)
        return int(text)

    def table(self, key: str) -> YamlTable:
        """A table; an empty one if there is none."""
        value, spot = self.get(key)
        if value is None:
            return YamlTable(spot)
        if not isinstance(value, YamlTable):
            raise spot.error(f"{key} must be a table", hint=_HINT)
        return value

    def items(self, key: str) -> list[tuple[Value, Location]]:
        """The values of a list with their places; none if there is no list."""
        value, spot = self.get(key)
        if value is None:
            return []
        if not isinstance(value, YamlList):
            raise spot.error(f"{key} must be a list", hint=_HINT)
        return value.items

    def texts(self, key: str) -> list[tuple[str, Location]]:
        """The values of a list of text with their places."""
        found = []
        for value, spot in self.items(key):
            if not isinstance(value, str):
                raise spot.error(f"each entry of {key} must be text", hint=_HINT)
            found.append((value, spot))
        return found

    def tables(self, key: str) -> list[YamlTable]:
        """The values of a list of tables."""
        found = []
        for value, spot in self.items(key):
            if not isinstance(value, YamlTable):
                raise spot.error(f"each entry of {key} must be a table", hint=_HINT)
            found.append(value)
        return found

    def refuse_unknown(self, known: set[str]) -> None:
        """Raise an error if a key is not among the known ones."""
        for key, (_, spot) in self.values.items():
            if key not in known:
                raise spot.error(f"unknown key {shown(key)}", hint=f"known: {', '.join(sorted(known))}")


def parse_yaml(text: str, path: Path) -> YamlTable:
    """Parse a file whose top level is a table.

    Raises:
        InputError: it is not, or it is not YAML, or uses what no such file needs (tags, several documents).

    """
    spot = Location(path)
    try:
        value = _build(yaml.parse(text, Loader=_LOADER), spot)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = shown(error.problem or "unknown").strip("'\"")
        raise spot.at(mark.line + 1 if mark else 0).error(f"not valid YAML: {problem}", hint=_HINT) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise spot.error("not valid YAML: it holds characters that no text has", hint=_HINT) from error
    if not isinstance(value, YamlTable):
        raise spot.error("must be a table, with lines like key: value", hint=_HINT)
    return value


class _Builder:
    """Puts values where they belong while the events come by."""

    def __init__(self) -> None:
        self.root: Value = None
        self.open: list[YamlTable | YamlList] = []
        self.keys: list[tuple[str, Location] | None] = []  # for each open one: the key that waits for its value
        self.anchors: dict[str, Value] = {}

    def put(self, value: Value, spot: Location) -> None:
        if not self.open:
            self.root = value
            return
        inside = self.open[-1]
        if isinstance(inside, YamlList):
            inside.items.append((value, spot))
        elif waiting := self.keys[-1]:
            inside.values[waiting[0]] = (value, waiting[1])
            self.keys[-1] = None
        elif not isinstance(value, str):
            raise spot.error("a key must be text", hint=_HINT)
        elif value in inside.values:
            raise spot.error(f"the key {shown(value)} is there twice", hint="remove one of them")
        else:
            self.keys[-1] = (value, spot)

    def begin(self, value: YamlTable | YamlList) -> None:
        if len(self.open) >= _DEEPEST:
            raise value.spot.error("is nested too deeply", hint=_HINT)
        self.put(value, value.spot)
        self.open.append(value)
        self.keys.append(None)

    def end(self) -> None:
        self.open.pop()
        self.keys.pop()


def _build(events: Iterator[yaml.Event], file: Location) -> Value:
    builder, documents = _Builder(), 0
    for event in events:
        spot = file.at(event.start_mark.line + 1 if event.start_mark else 0)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise spot.error("a second document begins here", hint="keep one of them")
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in builder.anchors:
                raise spot.error(f"no anchor {shown(event.anchor or '')} before this line", hint=_HINT)
            builder.put(builder.anchors[event.anchor], spot)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            builder.end()
        elif isinstance(event, yaml.NodeEvent):
            _put_node(builder, event, spot)
    return builder.root


def _put_node(builder: _Builder, event: yaml.NodeEvent, spot: Location) -> None:
    if getattr(event, "tag", None) not in (None, "!"):
        raise spot.error("tags like !!int have no meaning here", hint="remove the tag")
    if isinstance(event, yaml.ScalarEvent):
        value: Value = None if event.implicit[0] and event.value in _NOTHING else event.value
        builder.put(value, spot)
    else:
        value = YamlTable(spot) if isinstance(event, yaml.MappingStartEvent) else YamlList(spot)
        builder.begin(value)
    if event.anchor:
        builder.anchors[event.anchor] = value
