"""Packs all files of an environment for another machine's store, one piece for each package, and unpacks them there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from envpack.archive.output import Output
from envpack.archive.reading import ArchiveReader, Member, opened_archive
from envpack.archive.segments import DamagedSegmentError, compressed, write_tar
from envpack.archive.tar_members import END, check_entries
from envpack.environment import INVENTORY, MANIFEST, Entry, Environment, environment_in_use, parse_inventory
from envpack.support.bounded_reading import parse_json, read_bytes
from envpack.support.folders import cache_folder
from envpack.support.links_and_modes import FILE, FOLDER, PROGRAM
from envpack.support.progress import Progress

_MOST_HEAD = 256 << 20  # bytes of a manifest or an inventory
_MODES = {"file": FILE, "program": PROGRAM}


def pack_whole(environment: Environment, file: Path, progress: Progress) -> tuple[int, ...]:
    """Write all files of an environment as an archive, with the manifest and the inventory of the store first.

    Packages that an archive in the cache contains are copied from there. The same package gives the same bytes in the
    archive of any environment.

    Returns:
        The size of each piece of the archive, in order: what describes the environment, each package, and the end.
    """
    with environment_in_use(environment):
        inventory = read_bytes(environment.prefix / INVENTORY, most=_MOST_HEAD)
        entries = parse_inventory(inventory)
        check_entries(entries)
        head = {MANIFEST: (environment.prefix / MANIFEST).read_bytes(), INVENTORY: inventory}
        while True:
            try:
                with file.open("wb", buffering=0) as raw, Output(raw, progress, hashed=False) as out:
                    segments = write_tar(out, head, environment.prefix, entries, cache_folder("archives"))
            except DamagedSegmentError as error:  # its index is removed, so the next attempt does not use it
                progress.detail(str(error))
                continue
            sizes, end = [segment.size for segment in segments.values()], len(compressed(END))
            return (out.size - sum(sizes) - end, *sizes, end)


def unpack_whole(archive: Path, folder: Path, content: str, limit: int) -> None:
    """Unpack what `pack_whole` wrote. Every file is compared with its SHA-256."""
    try:
        _unpack_all(archive, folder, content, limit)
    except _WriteError as error:  # which `opened_archive` would take for an error of the archive
        raise error.cause from None


class _WriteError(Exception):
    """A file cannot be written."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _unpack_all(archive: Path, folder: Path, content: str, limit: int) -> None:
    with opened_archive(archive, limit) as reader:
        members = iter(reader)
        manifest = _head(members, reader, MANIFEST)
        inventory = _head(members, reader, INVENTORY)
        described = parse_json(manifest)
        announced = described.get("content") if isinstance(described, dict) else None
        if not hashlib.sha256(inventory).hexdigest() == content == announced:
            raise ValueError("its list of files is another one than announced")
        entries = parse_inventory(inventory)
        check_entries(entries)
        left = {entry.path: entry for entry in entries}
        for member in members:
            entry = left.pop(member.name.rstrip("/"), None)
            if entry is None or (member.kind, member.size, member.target) != (entry.kind, entry.size, entry.target):
                raise ValueError(f"{member.name!r} is not as its list of files says")
            try:
                _unpack(entry, reader, folder)
            except OSError as error:
                raise _WriteError(error) from error
        if left:
            raise ValueError(f"it lacks {next(iter(left))!r}")
    (folder / INVENTORY).write_bytes(inventory)
    (folder / MANIFEST).write_bytes(manifest)
    for name in (INVENTORY, MANIFEST):
        (folder / name).chmod(FILE)


def _head(members: Iterator[Member], reader: ArchiveReader, name: str) -> bytes:
    member = next(members, None)
    content = reader.text(_MOST_HEAD) if member is not None and member.name == name else b""
    if not content:
        raise ValueError(f"it does not begin with {name}")
    return content


def _unpack(entry: Entry, reader: ArchiveReader, folder: Path) -> None:
    """Write one entry. No name leads out of the folder, and none is below a link: the entries were checked."""
    path = f"{folder}/{entry.path}"
    if entry.kind == "folder":
        _make_folders(path)
        return
    _make_folders(os.path.dirname(path))  # noqa: PTH120 - text is faster, and there are tens of thousands
    if entry.kind == "link":
        os.symlink(entry.target, path)  # noqa: PTH211
        return
    digest = hashlib.sha256()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(handle, "wb", buffering=0) as file:  # noqa: PTH123
        for piece in reader.content():
            digest.update(piece)
            file.write(piece)
        os.fchmod(handle, _MODES[entry.kind])
    if digest.hexdigest() != entry.sha256:
        raise ValueError(f"{entry.path!r} has another content than its list of files says")


def _make_folders(path: str) -> None:
    if os.path.isdir(path):  # noqa: PTH112
        return
    _make_folders(os.path.dirname(path))  # noqa: PTH120
    os.mkdir(path)  # noqa: PTH102
    os.chmod(path, FOLDER)  # noqa: PTH101
