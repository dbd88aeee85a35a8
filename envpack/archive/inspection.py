"""Inspects an execution environment in a folder or an archive, and verifies it against its own inventory."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import posixpath
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from envpack.archive.comparison import LARGEST, Comparison, Difference, Inspection, is_record
from envpack.archive.folder import changed_files
from envpack.archive.manifest import archive_metadata_file, is_recorded_archive, read_metadata
from envpack.archive.reading import DEFAULT_LIMIT, ArchiveReader, Member, bomb, opened_archive
from envpack.archive.tar_members import is_canonical, upwards
from envpack.environment.inventory import INVENTORY, Entry, read_entry
from envpack.support.bounded_reading import read_bytes, read_json
from envpack.support.errors import InputError
from envpack.support.placed_files import MANIFEST
from envpack.support.pool import map_batches
from envpack.support.text import printable

_MOST_DEPTH = 128  # folders in each other; real environments have 20
_MOST_CHARACTERS = 256 << 20  # of the names of all folders
_MOST_TARGETS = 4 << 20  # characters; each link is followed, so long targets take long
_LARGEST_TEXT = 48 << 20  # bytes of the inventory
_MOST_READ = 32  # archives whose inspection is remembered
_BELOW_A_LINK = "it is below a link"


def inspect_environment(path: Path, *, limit: int = DEFAULT_LIMIT) -> Inspection:
    """Compare a folder, or an archive that is read once, with its inventory and with what servers accept."""
    try:
        if path.is_dir():
            return _of_folder(path)
        found: Inspection = _once_read(path, limit, lambda: _Archive(path).inspection(limit))
        return dataclasses.replace(found, path=path, findings=[*found.findings], count={**found.count})
    except OSError as error:
        what = f"this environment cannot be read: {error.strerror}"
        fix = "give a readable folder or archive of an execution environment"
        raise InputError("environment-unreadable", what, fix, str(error.filename or path)) from error


def damage_of(environment: Path) -> str:
    """What was changed of an environment since envpack placed it, ``""`` if nothing is known of that."""
    metadata = read_metadata(environment)
    if not metadata or not environment.exists():
        return ""
    if not environment.is_dir():
        return "" if is_recorded_archive(environment) else f"{environment} was changed after the build"
    changed = changed_files(environment, str(metadata.get("key", "")))
    if not changed:
        return ""
    more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
    return f"{environment}: {printable(changed[0])} was changed or removed after the build{more}"


def refused_members(path: Path, *, strict: bool) -> tuple[Difference, ...]:
    """What a server would reject in an archive, or unpack outside of its folder. The archive is read to its end."""
    found: list[Difference] = _once_read(path, "refused", lambda: _Archive(path).refused())
    return tuple(finding for finding in found if is_rejected(finding, strict=strict))


def is_rejected(finding: Difference, *, strict: bool) -> bool:
    return finding.kind == "refused" and (strict or finding.reason != _BELOW_A_LINK)


_read: dict[Hashable, Any] = {}  # what `_once_read` has found, the oldest first


def _once_read(path: Path, purpose: Hashable, read: Callable[[], Any]) -> Any:
    """What reading an archive gives, which is read once for all models that have hard links to it."""
    status, sidecar, described = path.stat(), archive_metadata_file(path), b""
    if status.st_nlink == 1:
        return read()
    with contextlib.suppress(OSError):  # the inspection reports it
        described = read_bytes(sidecar)
    stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    key = purpose, stamp, sidecar.name, hashlib.sha256(described).digest()
    if key not in _read:
        found = read()
        while len(_read) >= _MOST_READ:
            del _read[next(iter(_read))]
        _read[key] = found
    return _read[key]


def _of_folder(root: Path) -> Inspection:
    comparison = Comparison(root)
    for name in (MANIFEST, INVENTORY):
        file = root / name
        if file.is_file() and not file.is_symlink() and file.stat().st_size <= _LARGEST_TEXT:
            comparison.add_description(name, read_bytes(file, most=_LARGEST_TEXT))
    found = list(_walk(comparison.result, str(root)))
    for seen in chain.from_iterable(map_batches(lambda path: read_entry(root, path), found)):
        comparison.add(seen)
    for record in (*root.glob("conda-meta/*.json"), *root.glob("lib/python3.*/site-packages/*.dist-info/METADATA")):
        if record.is_file() and not record.is_symlink() and record.stat().st_size <= LARGEST:
            comparison.add_record(str(record.relative_to(root)), read_bytes(record, most=LARGEST))
    return comparison.finished()


def _walk(result: Inspection, root: str, below: str = "") -> Iterator[str]:
    inside = False
    with os.scandir(f"{root}/{below}") as found:
        for item in found:
            inside = True
            if item.is_dir(follow_symlinks=False):
                yield from _walk(result, root, f"{below}{item.name}/")
            elif item.is_symlink() or item.is_file(follow_symlinks=False):
                yield f"{below}{item.name}"
            else:
                result.find("refused", f"{below}{item.name}", "it is a device, a pipe or a socket")
    if below and not inside:
        yield below


class _Archive:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._comparison = Comparison(path)
        self._result = self._comparison.result
        self._folders: set[str] = set()  # above a member
        self._characters = 0  # of these names
        self._targets = 0  # characters of the targets of links

    def inspection(self, limit: int) -> Inspection:
        links: set[str] = set()
        with opened_archive(self._path, limit) as archive:
            self._result.form = archive.form
            for member in archive:
                if not self._check_name(member, links):
                    continue
                if member.kind == "folder":
                    continue  # the inventory lists empty folders; other folders need no check
                self._add_member(member, archive)
            self._result.sha256 = archive.sha256
        self._compare_with_sidecar(archive_metadata_file(self._path))
        return self._comparison.finished()

    def refused(self) -> list[Difference]:
        """What servers reject; the content of files is not looked at."""
        links: set[str] = set()
        with opened_archive(self._path) as archive:
            for member in archive:
                if not self._check_name(member, links):
                    continue
                if member.kind == "hard link":
                    self._add_hard_link(member)
                elif member.kind != "folder":
                    self._comparison.add(_entry(member))
        self._comparison.find_refused()
        return self._result.findings

    def _add_member(self, member: Member, archive: ArchiveReader) -> None:
        if member.name in (MANIFEST, INVENTORY):
            self._comparison.add_description(member.name, archive.text(_LARGEST_TEXT))
            largest = self._comparison.largest_tar()
            if largest is not None:
                archive.expect(largest)
            return
        if member.kind == "hard link":
            self._add_hard_link(member)
        elif member.kind == "link":
            self._comparison.add(_entry(member))
        else:
            self._add_file(member, archive)

    def _add_file(self, member: Member, archive: ArchiveReader) -> None:
        digest = hashlib.sha256()
        if is_record(member.name) and member.size <= LARGEST:
            content = archive.text(LARGEST)
            digest.update(content)
            self._comparison.add_record(member.name, content)
        else:
            for piece in archive.content():
                digest.update(piece)
        self._comparison.add(_entry(member)._replace(size=member.size, sha256=digest.hexdigest()))

    def _add_hard_link(self, member: Member) -> None:
        first = self._comparison.actual.get(member.target.removeprefix("./"))
        if first is None or first.kind not in ("file", "program"):
            self._result.find(
                "refused", member.name, f"it is a hard link to {member.target}, and no file of that name precedes it"
            )
        else:
            self._comparison.add(first._replace(path=member.name.rstrip("/")))

    def _check_name(self, member: Member, links: set[str]) -> bool:
        name = member.name.rstrip("/")
        if name in ("", "."):
            return member.kind == "folder"
        reason = _wrong_name(member, name) or self._misplaced(name, member, links) or self._wrong_kind(name, member)
        if member.kind == "link" and not reason:
            links.add(name)
            self._targets += len(member.target)
            if self._targets > _MOST_TARGETS:
                raise bomb(self._path, f"the targets of its links have more than {_MOST_TARGETS} characters")
        if reason:
            self._result.find("refused", member.name, reason)
        return not reason

    def _misplaced(self, name: str, member: Member, links: set[str]) -> str:
        """What is wrong with the place of a member among those before it; empty if nothing is."""
        above = tuple(upwards(posixpath.dirname(name)))
        if not links.isdisjoint(above):
            return _BELOW_A_LINK
        if any(folder in self._comparison.actual for folder in above):
            return "it is below a file"
        if member.kind != "folder" and name in self._folders:
            return "it is a file, and a member before it makes it a folder"
        for folder in (*above, name) if member.kind == "folder" else above:
            if folder not in self._folders:
                self._folders.add(folder)
                self._characters += len(folder)
        if self._characters > _MOST_CHARACTERS:
            raise bomb(self._path, "the names of its folders need too much memory")
        return ""

    def _wrong_kind(self, name: str, member: Member) -> str:
        if member.kind == "special":
            return "it is a device, a pipe or another special file"
        known = name in self._comparison.actual or name in self._comparison.descriptions
        return "it occurs twice" if known else ""

    def _compare_with_sidecar(self, sidecar: Path) -> None:
        try:
            recorded = read_json(sidecar)["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            self._result.find("unproven", "", f"there is no {sidecar.name} beside it with its SHA-256")
            return
        if recorded != self._result.sha256:
            self._result.find("changed", "", f"its SHA-256 differs from the one in {sidecar.name}")


def _entry(member: Member) -> Entry:
    kind: Any = member.kind
    return Entry(member.name.rstrip("/"), kind, "", target=member.target)


def _wrong_name(member: Member, name: str) -> str:
    """What is wrong with the name of a member by itself; empty if nothing is."""
    if member.name.startswith("/"):
        return "its name is absolute"
    if ".." in name.split("/"):
        return "its name contains .."
    if max(name.count("/"), member.target.count("/")) > _MOST_DEPTH:
        return f"its name or its target has more than {_MOST_DEPTH} folders"
    return "" if is_canonical(name) else "its name is not canonical"
