"""Layers of container images: files as a tar.gz, the same bytes for the same files, and how to unpack one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.archive.reading import opened_archive
from envpack.archive.segments import Output, compressed
from envpack.archive.tar_members import END, PORTION, escaping_links, header, is_canonical, padding
from envpack.environment.inventory import OWN, Entry
from envpack.support.bounded_reading import opened
from envpack.support.errors import InputError, StorageError
from envpack.support.links_and_modes import Folders
from envpack.support.processes import raise_if_stopped
from envpack.support.progress import SILENT

_ANY_RATIO = 2000  # content to file: the weights of a model may be zeros, of which gzip makes a thousandth
_MODES = {"file": 0o644, "program": 0o755}


@dataclass(frozen=True)
class LayerMember:
    """A file, link or folder in a layer."""

    path: str  # relative to the root of the image
    kind: Literal["file", "program", "link", "folder"]  # ``"program"`` is an executable file
    size: int = 0  # bytes of the content
    source: Path | None = None  # the file with the content, None if that is ``content``
    content: bytes = b""  # the content of a file without source
    target: str = ""  # target of a link


@dataclass(frozen=True)
class PackedLayer:
    """A layer as a file."""

    sha256: str  # SHA-256 of the file
    size: int  # bytes of the file
    content_sha256: str  # SHA-256 of the tar file in it


def pack_layer(members: Sequence[LayerMember], file: Path, report: Callable[[int], None]) -> PackedLayer:
    """Write a layer. Files belong to root, and have one time stamp."""
    content = hashlib.sha256()
    with file.open("wb", buffering=0) as raw, Output(raw, SILENT) as out:
        for portion in _portions(_blocks(members)):
            raise_if_stopped()
            content.update(portion)
            out.write(compressed(portion))
            report(len(portion))
    return PackedLayer(out.digest.hexdigest(), out.size, content.hexdigest())


def _blocks(members: Sequence[LayerMember]) -> Iterator[bytes]:
    for member in members:
        yield header(Entry(member.path, member.kind, OWN, member.size, target=member.target))
        if member.source is None:
            yield member.content
        else:
            yield from _content(member.source, member.size)
        yield padding(member.size)
    yield END


def _content(source: Path, size: int) -> Iterator[bytes]:
    left = size
    with opened(source) as content:
        while left and (piece := content.read(min(left, PORTION))):
            left -= len(piece)
            yield piece
        if left or content.read(1):
            fix = "publish again when nothing writes to the repository"
            raise StorageError("file-unusable", "this file changed while it was published", fix, str(source))


def _portions(blocks: Iterator[bytes]) -> Iterator[memoryview]:
    """The bytes of some blocks in portions of equal size, which are compressed one by one."""
    gathered = bytearray()
    for block in blocks:
        gathered += block
        while len(gathered) >= PORTION:
            yield memoryview(bytes(gathered[:PORTION]))
            del gathered[:PORTION]
    if gathered:
        yield memoryview(bytes(gathered))


class Unpacker(Folders):
    """Writes what archives contain into an empty folder, and over nothing that it wrote before."""

    def __init__(self, root: Path, modes: Mapping[str, int]) -> None:
        super().__init__(root)
        self._modes = modes

    def write(self, path: str, kind: str, target: str, content: Iterator[bytes]) -> str:
        self.make(path if kind == "folder" else path.rpartition("/")[0])
        if kind == "folder":
            return ""
        if kind == "link":
            os.symlink(target, f"{self.root}/{path}")  # noqa: PTH211
            return ""
        digest = hashlib.sha256()
        handle = os.open(f"{self.root}/{path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(handle, "wb", buffering=0) as file:  # noqa: PTH123
            for piece in content:
                digest.update(piece)
                file.write(piece)
            os.fchmod(handle, self._modes[kind])
        return digest.hexdigest()


class LayerUnpacker(Unpacker):
    """Unpacks layers that `pack_layer` wrote into one folder. No name or link in them leads out of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, _MODES)
        self._links: dict[str, str] = {}

    def unpack(self, layer: Path, limit: int) -> int:
        written = 0
        with opened_archive(layer, limit, highest_ratio=_ANY_RATIO) as reader:
            for member in reader:
                path = member.name.rstrip("/")
                if not is_canonical(path) or member.kind not in ("folder", "link", *_MODES):
                    raise _no_layer(layer, member.name)
                if member.kind == "link":
                    self._links[path] = member.target
                written += member.size
                try:
                    self.write(path, member.kind, member.target, reader.content())
                except FileExistsError as error:
                    taken = os.path.relpath(error.filename2 or error.filename, self.root)
                    raise _no_layer(layer, taken) from None
        for path in escaping_links(self._links):
            raise _no_layer(layer, path)
        return written


def _no_layer(layer: Path, name: str) -> InputError:
    what = f"{name!r} does not belong in a layer of models"
    return InputError("environment-unreadable", what, "publish the image again with `envpack publish`", str(layer))
