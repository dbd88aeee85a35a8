"""Records: small objects that say which blobs a key stands for. The first one that is written for a key stays.

An index has a copy of all in one object, so that a list of them is not one request for each.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from envpack.store.objects import ObjectInfo, Objects
from envpack.support.bounded_reading import parse_json
from envpack.support.errors import StorageError
from envpack.support.text import is_sha256

RecordKind = Literal["environment", "stub", "lock", "package"]
KINDS: tuple[RecordKind, ...] = ("environment", "stub", "lock", "package")
MOST_RECORD = 4 << 20  # bytes
MOST_BYTES = 64 << 30  # bytes of all blobs of a record
_MOST_BLOBS = 20_000
_SCHEMA = 1
_KEY = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}")
_BLOB_PATH = re.compile(r"blobs/[0-9a-f]{2}/([0-9a-f]{64})")
_RECORD_PATH = re.compile(rf"records/({'|'.join(KINDS)})/({_KEY.pattern})\.json")


@dataclass(frozen=True)
class Blob:
    """Bytes in a store, named by their content."""

    sha256: str  # their SHA-256, in hexadecimal digits
    size: int  # how many there are

    @property
    def path(self) -> str:
        return f"blobs/{self.sha256[:2]}/{self.sha256}"


@dataclass(frozen=True)
class Record:
    """What a store has for a key."""

    kind: RecordKind  # what it is
    key: str  # its key; records of one kind with the same key stand for the same thing
    blobs: tuple[Blob, ...]  # its content: the concatenation of these
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)  # what describes it, by name

    @property
    def path(self) -> str:
        return record_path(self.kind, self.key)

    @property
    def size(self) -> int:
        return sum(blob.size for blob in self.blobs)

    def content(self) -> bytes:
        document = {
            "schema": _SCHEMA,
            "kind": self.kind,
            "key": self.key,
            "blobs": [[blob.sha256, blob.size] for blob in self.blobs],
            "facts": dict(self.facts),
        }
        return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def record_path(kind: RecordKind, key: str) -> str:
    return f"records/{kind}/{key}.json"


def record_at(path: str) -> tuple[RecordKind, str] | None:
    match = _RECORD_PATH.fullmatch(path)
    return (cast("RecordKind", match[1]), match[2]) if match else None


def blob_at(path: str) -> str:
    """The SHA-256 of the blob at a path, ``""`` if no blob can be there."""
    match = _BLOB_PATH.fullmatch(path)
    return match[1] if match and path.startswith(f"blobs/{match[1][:2]}/") else ""


class OtherVersionError(ValueError):
    """A record of another version of envpack."""


def parse_record(content: bytes, kind: RecordKind, key: str) -> Record:
    document = parse_json(content)
    if isinstance(document, dict) and type(document.get("schema")) is int and document["schema"] > _SCHEMA:
        raise OtherVersionError("it is no record of this version of envpack")
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        raise ValueError("it is no record")
    if (document.get("kind"), document.get("key")) != (kind, key):
        raise ValueError("it is the record of something else")
    facts = document.get("facts")
    if not isinstance(facts, dict):
        raise ValueError("it is damaged")
    record = Record(kind, key, _parse_blobs(document.get("blobs")), facts)
    if record.size > MOST_BYTES:
        raise ValueError(f"it announces {record.size} bytes, and {MOST_BYTES} are the most")
    return record


def _parse_blobs(found: object) -> tuple[Blob, ...]:
    if not isinstance(found, list) or not 0 < len(found) <= _MOST_BLOBS:
        raise ValueError("its list of blobs is damaged")
    blobs = []
    for entry in found:
        match entry:
            case [str(sha256), int(size)] if is_sha256(sha256) and size > 0 and type(size) is int:
                blobs.append(Blob(sha256, size))
            case _:
                raise ValueError("its list of blobs is damaged")
    return tuple(blobs)


_PATH = "index/records.json"
_INDEX_SCHEMA = 1
_MOST = 64 << 20  # bytes
_WORTH = 100  # records that were read one by one, after which the index is written


class RecordIndex:
    """The contents of records, each with the tag of the object that it was read from. It may lack some, or be none."""

    def __init__(self, objects: Objects, *, empty: bool) -> None:
        self._objects = objects
        self._known = {} if empty else self._read()
        self._found: dict[str, tuple[str, str]] = {}
        self._anew: list[str] = []

    def content(self, info: ObjectInfo) -> bytes | None:
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
        content = json.dumps({"schema": _INDEX_SCHEMA, "records": records}).encode()
        if len(content) <= _MOST:
            with contextlib.suppress(StorageError):
                self._objects.write(_PATH, content)

    def _read(self) -> dict[str, tuple[str, str]]:
        try:
            found = self._objects.read(_PATH, _MOST)
            document = parse_json(found[0]) if found else {}
            if not isinstance(document, dict) or document.get("schema") != _INDEX_SCHEMA:
                return {}
            records = document["records"].items()
            return {str(path): (str(tag), str(text)) for path, (tag, text) in records}
        except StorageError as error:
            if error.kind != "store-corrupt":
                raise
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        return {}
