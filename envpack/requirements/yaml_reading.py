"""YAML files with errors that name the line.

The values are built from the parser's events instead of PyYAML's loaders for three reasons: every error can name its
line; plain scalars stay text, so ``python: 3.10`` is not 3.1; and nothing recurses, so no file can exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from envpack.requirements.location import Location, quote
from envpack.requirements.parsing import HINT, Value, YamlList, YamlTable

_MAX_DEPTH = 40
_TOO_DEEP = "is nested too deeply"
_PARSER_DEPTH = "nesting depth"  # of PyYAML 6.0.4 and newer, whose parser reads ahead and reaches its own limit first
_NULL = {"", "~", "null", "Null", "NULL"}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, path: Path) -> YamlTable:
    """Parse YAML whose top level is a table."""
    location = Location(path)
    try:
        value = _build(yaml.parse(text, Loader=_LOADER), location)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = location.at(mark.line + 1 if mark else 0)
        if _PARSER_DEPTH in (error.problem or ""):
            raise place.error(_TOO_DEEP, hint=HINT) from error
        problem = quote(error.problem or "unknown").strip("'\"")
        raise place.error(f"not valid YAML: {problem}", hint=HINT) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise location.error("not valid YAML: it contains control characters", hint=HINT) from error
    if not isinstance(value, YamlTable):
        raise location.error("must be a table, with lines like key: value", hint=HINT)
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
            raise location.error("a key must be text", hint=HINT)
        elif value in container.values:
            raise location.error(f"the key {quote(value)} occurs twice", hint="remove one of them")
        else:
            self.keys[-1] = (value, location)

    def begin(self, container: YamlTable | YamlList) -> None:
        if len(self.open) >= _MAX_DEPTH:
            raise container.location.error(_TOO_DEEP, hint=HINT)
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
                raise location.error(f"no anchor {quote(event.anchor or '')} before this line", hint=HINT)
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
