"""A copy of all records of a store in one object, so that a list of them is not one request for each."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable

from envpack.store.objects import ObjectInfo, Objects
from envpack.store.records import MOST_RECORD
from envpack.support.bounded_reading import parse_json
from envpack.support.errors import StorageError

_PATH = "index/records.json"
_SCHEMA = 1
_MOST = 64 << 20  # bytes
_WORTH = 100  # records that were read one by one, after which the index is written


class RecordIndex:
    """The contents of records, each with the tag of the object that it was read from. It may lack some, or be none."""

    def __init__(self, objects: Objects, *, empty: bool) -> None:
        """Read the index of a store, unless it is to be empty."""
        self._objects = objects
        self._known = {} if empty else self._read()
        self._found: dict[str, tuple[str, str]] = {}
        self._anew: list[str] = []

    def content(self, info: ObjectInfo) -> bytes | None:
        """The content of a record, ``None`` if it is gone."""
        tag, text = self._known.get(info.path, ("", ""))
        if tag and tag == info.tag:
            self._found[info.path] = (tag, text)
            return text.encode()
        found = self._objects.read(info.path, MOST_RECORD)
        if found is None:
            return None
        self._anew.append(info.path)
        self._found[info.path] = (found[1].tag, found[0].decode(errors="replace"))
        return found[0]

    def save(self, present: Iterable[ObjectInfo]) -> None:
        """Write what was read, if it was much; where this machine may write."""
        if len(self._anew) < _WORTH:
            return
        records = {info.path: self._found[info.path] for info in present if info.path in self._found}
        content = json.dumps({"schema": _SCHEMA, "records": records}).encode()
        if len(content) <= _MOST:
            with contextlib.suppress(StorageError):
                self._objects.write(_PATH, content)

    def _read(self) -> dict[str, tuple[str, str]]:
        try:
            found = self._objects.read(_PATH, _MOST)
            document = parse_json(found[0]) if found else {}
            if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
                return {}
            records = document["records"].items()
            return {str(path): (str(tag), str(text)) for path, (tag, text) in records}
        except StorageError as error:
            if error.kind != "store-corrupt":
                raise
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        return {}
