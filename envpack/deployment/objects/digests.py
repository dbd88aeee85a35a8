"""Size and SHA-256 of files to publish, remembered as long as nothing touches them; and the digest of a publication."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.support.bounded_reading import opened, read_json
from envpack.support.errors import StorageError, storage_errors
from envpack.support.folders import cache_folder
from envpack.support.pool import Report
from envpack.support.processes import raise_if_stopped
from envpack.support.replacement import write_text

PIECE = 4 << 20  # bytes
_SETTLED = 2 * 10**9  # nanoseconds after which another change of a file has other time stamps


@dataclass(frozen=True)
class Described:
    """A file to publish with digest and size of its content."""

    file: PublishedFile
    sha256: str
    size: int

    @property
    def path(self) -> str:
        """Its path below the address."""
        return self.file.path


def pin(publication: Publication, address: str) -> Publication:
    """A publication whose files cannot change any more without an error, with its digest."""
    described = describe_files(publication.files, address)
    files = tuple(dataclasses.replace(one.file, sha256=one.sha256) for one in described)
    return dataclasses.replace(
        publication, files=files, digest=content_digest({one.path: one.sha256 for one in described})
    )


def content_digest(digests: Mapping[str, str]) -> str:
    """The digest of files by theirs: the SHA-256 of what ``sha256sum`` prints for them, sorted by their paths."""
    text = "".join(f"{sha256}  {path}\n" for path, sha256 in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def describe_files(files: Sequence[PublishedFile], address: str) -> list[Described]:
    """Files with their digests, which are remembered for an address. All can be read."""
    place = hashlib.sha256(address.encode()).hexdigest()[:16]
    memory = cache_folder("publications") / f"{place}.json"
    known, found = _remembered(memory), {}
    described = []
    for file in files:
        raise_if_stopped()
        if file.file is None:
            described.append(Described(file, hashlib.sha256(file.content).hexdigest(), len(file.content)))
            continue
        with storage_errors(file.file), opened(file.file) as content:
            status = os.fstat(content.fileno())
        sha256 = file.sha256
        if not sha256:
            name, stamp = str(file.file.absolute()), stamp_of(status)
            entry = known.get(name, [""])
            sha256 = str(entry[-1]) if entry[:-1] == stamp and entry[-1] else _sha256(file.file, stamp)
            found[name] = [*stamp, sha256 if has_settled(status, time.time_ns()) else ""]
        described.append(Described(file, sha256, status.st_size))
    with storage_errors(memory):
        memory.parent.mkdir(parents=True, exist_ok=True)
        if found and found != known:
            write_text(memory, json.dumps(found))
    return described


def stamp_of(status: os.stat_result) -> list[int]:
    """What differs after any change of a file, also after one that sets its modification time back."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino]


def has_settled(status: os.stat_result, now: int) -> bool:
    """Whether a file did not change shortly before a time in nanoseconds, or since, so that its stamp is its own."""
    return now - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED


def _remembered(memory: Path) -> dict[str, list[Any]]:
    try:
        return {name: list(entry) for name, entry in read_json(memory).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _sha256(file: Path, stamp: list[int]) -> str:
    digest = hashlib.sha256()
    for _ in pieces(file, digest):
        pass
    if stamp_of(file.stat()) != stamp:
        raise changed(file)
    return digest.hexdigest()


def pieces(file: Path, digest: Any, report: Report = lambda _: None) -> Iterator[bytes]:
    """The content of a file, which also goes into a digest."""
    with opened(file) as content:  # what was a file may be a pipe now
        os.posix_fadvise(content.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while piece := content.read(PIECE):
            digest.update(piece)
            yield piece
            report(len(piece))


def changed(file: Path) -> StorageError:
    """The error for a file that a program changed while it was read."""
    what = "this file changed while it was published"
    return StorageError("file-unusable", what, "publish again when nothing writes to the repository", str(file))
