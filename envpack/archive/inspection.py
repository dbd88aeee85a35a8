"""What an environment in a folder or an archive is by what it says of itself, and whether that is so."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import posixpath
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envpack.archive.members import BLOCK, is_canonical, leaves
from envpack.archive.reading import DEFAULT_LIMIT, ArchiveReader, Member, opened_archive
from envpack.archive.records import LARGEST, is_record, read_record
from envpack.archive.tarball import sidecar_of
from envpack.environment.inventory import INVENTORY, Entry, parse_inventory
from envpack.environment.store import MANIFEST, Package
from envpack.errors import InputError

MOST_FINDINGS = 1000  # that are kept; all are counted
_LARGEST_TEXT = 48 << 20  # bytes of the list of files
_LONGEST_SHOWN = 1000  # characters
_SLACK = 1 << 20  # bytes; padding of an archive's end


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        kind: ``"changed"``, ``"missing"``, ``"added"``: compared with the list of files; ``"refused"``: servers do not
            take it; ``"unproven"``: nothing to compare with, which is wrong only for who is strict.
        path: of the file, ``""`` for the environment as a whole.
        reason: in words.

    """

    kind: str
    path: str
    reason: str


@dataclass
class Inspection:
    """What was found.

    Attributes:
        path: folder or archive.
        form: ``"dir"``, ``"tar.gz"`` or ``"tar"``.
        told: what the environment says of itself; empty if it says nothing.
        packages: what is installed.
        files: how many files and links there are.
        size: bytes of their content.
        sha256: of an archive, ``""`` for a folder.
        verified: how many files are as the list of files says.
        findings: what is not as it should be, `MOST_FINDINGS` at most.
        count: how many findings there are in all, by kind.

    """

    path: Path
    form: str
    told: dict[str, Any] = field(default_factory=dict)
    packages: tuple[Package, ...] = ()
    files: int = 0
    size: int = 0
    sha256: str = ""
    verified: int = 0
    findings: list[Finding] = field(default_factory=list)
    count: dict[str, int] = field(default_factory=dict)

    def find(self, kind: str, path: str, reason: str) -> None:
        """Note something that is not as it should be."""
        self.count[kind] = self.count.get(kind, 0) + 1
        path, reason = path[:_LONGEST_SHOWN], reason[:_LONGEST_SHOWN]
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Finding(kind, path, reason))

    def is_good(self, *, strict: bool = False) -> bool:
        """Whether nothing is wrong; for who is strict, also whether everything is proven."""
        return not any(strict or kind != "unproven" for kind in self.count)


def inspect_environment(path: Path, *, limit: int = DEFAULT_LIMIT) -> Inspection:
    """Compare a folder or an archive with its own list of files, and with what servers take. Nothing of it is run.

    An archive is read once, as a stream. Nothing is unpacked.

    Args:
        path: folder or archive.
        limit: most bytes that an archive's content may have.

    Raises:
        InputError: kind ``environment-unreadable`` or ``archive-bomb``.

    """
    try:
        return _Comparison(path).of_folder() if path.is_dir() else _Comparison(path).of_archive(limit)
    except OSError as error:
        raise InputError(
            f"this environment cannot be read: {error.strerror}",
            kind="environment-unreadable",
            where=str(error.filename or path),
            hint="give the folder of an environment, or an archive of one, that you may read",
        ) from error


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file, link or empty folder that is there."""

    kind: str
    size: int
    sha256: str
    target: str


class _Comparison:
    def __init__(self, path: Path) -> None:
        self._result = Inspection(path, "dir")
        self._seen: dict[str, _Seen] = {}
        self._listed: dict[str, Entry] | None = None
        self._described: dict[str, bytes] = {}
        self._packages: dict[str, Package] = {}

    def of_folder(self) -> Inspection:
        root = self._result.path
        for name in (MANIFEST, INVENTORY):
            file = root / name
            if file.is_file() and not file.is_symlink() and file.stat().st_size <= _LARGEST_TEXT:
                self._take_description(name, file.read_bytes())
        found = list(self._walk(str(root)))
        with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
            for path, seen in zip(found, pool.map(lambda one: _look_at(root, one), found, chunksize=64), strict=True):
                self._take(path, seen)
        for record in (*root.glob("conda-meta/*.json"), *root.glob("lib/python3.*/site-packages/*.dist-info/METADATA")):
            self._take_record(str(record.relative_to(root)), record.read_bytes())
        return self._finished()

    def _walk(self, root: str, below: str = "") -> Iterator[str]:
        inside = False
        with os.scandir(f"{root}/{below}") as found:
            for one in found:
                inside = True
                if one.is_dir(follow_symlinks=False):
                    yield from self._walk(root, f"{below}{one.name}/")
                elif one.is_symlink() or one.is_file(follow_symlinks=False):
                    yield f"{below}{one.name}"
                else:
                    self._result.find("refused", f"{below}{one.name}", "it is a device, a pipe or a socket")
        if below and not inside:
            yield below

    def of_archive(self, limit: int) -> Inspection:
        path = self._result.path
        links: set[str] = set()
        with opened_archive(path, limit) as archive:
            self._result.form = archive.form
            for member in archive:
                if not self._check_name(member, links):
                    continue
                if member.kind == "folder":
                    continue  # who is empty is known by the list of files; others say nothing
                self._take_member(member, archive)
            self._result.sha256 = archive.sha256
        self._compare_with_sidecar(sidecar_of(path))
        return self._finished()

    def _take_member(self, member: Member, archive: ArchiveReader) -> None:
        if member.name in (MANIFEST, INVENTORY):
            self._take_description(member.name, archive.text(_LARGEST_TEXT))
            if self._listed is not None:
                archive.expect(_size_of_tar(self._listed.values(), self._described))
            return
        if member.kind == "hard link":
            self._take_hard_link(member)
        elif member.kind == "link":
            self._take(member.name, _Seen("link", 0, "", member.target))
        else:
            self._take_file(member, archive)

    def _take_file(self, member: Member, archive: ArchiveReader) -> None:
        digest = hashlib.sha256()
        if _is_record(member):
            content = archive.text(LARGEST)
            digest.update(content)
            self._take_record(member.name, content)
        else:
            for piece in archive.content():
                digest.update(piece)
        self._take(member.name, _Seen(member.kind, member.size, digest.hexdigest(), ""))

    def _take_hard_link(self, member: Member) -> None:
        first = self._seen.get(member.target.removeprefix("./"))
        if first is None or first.kind not in ("file", "program"):
            self._result.find(
                "refused", member.name, f"it is a hard link to {member.target}, which is no file before it"
            )
        else:
            self._take(member.name, first)

    def _check_name(self, member: Member, links: set[str]) -> bool:
        """Whether a member has a name and a kind that servers take."""
        reason = ""
        name = member.name.rstrip("/")
        if name in ("", "."):
            return member.kind == "folder"
        if member.name.startswith("/"):
            reason = "its name is absolute"
        elif ".." in name.split("/"):
            reason = "its name has .. in it"
        elif not is_canonical(name):
            reason = "its name is not canonical"
        elif any(above in links for above in _upwards(posixpath.dirname(name))):
            reason = "it lies below a link"
        elif member.kind == "special":
            reason = "it is a device, a pipe or something else that is no file"
        elif member.kind != "folder" and (name in self._seen or name in self._described):
            reason = "it is there twice"
        if member.kind == "link" and not reason:
            links.add(name)
        if reason:
            self._result.find("refused", member.name, reason)
        return not reason

    def _take(self, path: str, seen: _Seen) -> None:
        path = path.rstrip("/")
        self._seen[path] = seen
        if seen.kind != "folder":
            self._result.files += 1
            self._result.size += seen.size
        if seen.kind == "link" and leaves(path, seen.target):
            self._result.find("refused", path, f"it leads out of the environment, to {seen.target}")

    def _take_description(self, name: str, content: bytes) -> None:
        self._described[name] = content
        try:
            if name == INVENTORY:
                self._listed = {entry.path: _plausible(entry) for entry in parse_inventory(content)}
            else:
                told = json.loads(content)
                self._result.told = told if isinstance(told, dict) else {}
        except (ValueError, TypeError, RecursionError) as error:
            self._result.find("changed", name, f"it is damaged: {error}")

    def _take_record(self, path: str, content: bytes) -> None:
        package = read_record(path, content)
        if package and (package.source == "conda" or package.name not in self._packages):
            self._packages[package.name] = package

    def _compare_with_sidecar(self, sidecar: Path) -> None:
        try:
            said = json.loads(sidecar.read_text(encoding="utf-8"))["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            self._result.find("unproven", "", f"there is no {sidecar.name} beside it with its SHA-256")
            return
        if said != self._result.sha256:
            self._result.find("changed", "", f"it is not the archive that {sidecar.name} is about")

    def _finished(self) -> Inspection:
        result = self._result
        if "bin/activate" not in self._seen:
            result.find("refused", "", "it has no bin/activate at its root")
        if self._listed is None:
            result.find("unproven", "", f"it has no {INVENTORY}, so its files cannot be verified")
        else:
            self._compare(self._listed)
            self._compare_descriptions()
        result.packages = self._told_packages() or tuple(
            sorted(self._packages.values(), key=lambda one: (one.source, one.name))
        )
        result.findings.sort(key=lambda one: (one.kind == "unproven", one.path, one.kind))
        return result

    def _compare(self, listed: dict[str, Entry]) -> None:
        result = self._result
        for path, entry in listed.items():
            seen = self._seen.get(path)
            if seen is None:
                if entry.kind != "folder" or result.form == "dir":
                    result.find("missing", path, f"a file of {entry.package} that is not there")
            elif (seen.kind, seen.size, seen.sha256, seen.target) != (
                entry.kind,
                entry.size,
                entry.sha256,
                entry.target,
            ):
                result.find("changed", path, f"a file of {entry.package} that is {_difference(seen, entry)}")
            else:
                result.verified += 1
        for path, seen in self._seen.items():
            if path in listed or path in (MANIFEST, INVENTORY) or seen.kind == "folder":
                continue
            written_later = result.form == "dir" and "/__pycache__/" in path and path.endswith(".pyc")
            result.find("unproven" if written_later else "added", path, "it is not in the list of files")

    def _compare_descriptions(self) -> None:
        content = hashlib.sha256(self._described[INVENTORY]).hexdigest()
        if self._result.told.get("content") != content:
            self._result.find("changed", INVENTORY, f"it is not the list of files that {MANIFEST} names")

    def _told_packages(self) -> tuple[Package, ...]:
        try:
            found = tuple(Package(**package) for package in self._result.told["packages"])
        except (KeyError, TypeError):
            return ()
        return found if all(_is_plausible(package, Package("", "", "")) for package in found) else ()


def _plausible(entry: Entry) -> Entry:
    if not _is_plausible(entry, Entry("", "file", "")):
        raise ValueError("a row of it makes no sense")
    return entry


def _is_plausible(told: Entry | Package, example: Entry | Package) -> bool:
    """Whether all that was read has the types that it should."""
    return all(
        type(getattr(told, field.name)) is type(getattr(example, field.name)) for field in dataclasses.fields(example)
    )


def _look_at(root: Path, path: str) -> _Seen:
    place = f"{root}/{path}"
    if path.endswith("/"):
        return _Seen("folder", 0, "", "")
    if os.path.islink(place):  # noqa: PTH114 - text is faster
        return _Seen("link", 0, "", os.readlink(place))  # noqa: PTH115
    with open(place, "rb") as content:  # noqa: PTH123
        status = os.fstat(content.fileno())
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return _Seen("program" if status.st_mode & 0o100 else "file", status.st_size, digest, "")


def _difference(seen: _Seen, entry: Entry) -> str:
    if seen.kind != entry.kind:
        return f"a {seen.kind} now, not a {entry.kind}"
    if seen.kind == "link":
        return f"a link to {seen.target} now, not to {entry.target}"
    if seen.size != entry.size:
        return f"{seen.size} bytes now, not {entry.size}"
    return "of the same size with another content"


def _is_record(member: Member) -> bool:
    return is_record(member.name) and member.size <= LARGEST


def _size_of_tar(entries: Iterable[Entry], described: dict[str, bytes]) -> int:
    """Most bytes that a tar file of these entries has."""
    size = _SLACK + sum(len(content) + 4 * BLOCK for content in described.values())
    for entry in entries:
        names = len(entry.path) + len(entry.target)
        size += 8 * BLOCK + 4 * names + entry.size + BLOCK
    return size


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
