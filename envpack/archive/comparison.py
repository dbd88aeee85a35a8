"""Compares what an execution environment contains with what its own manifest and inventory list."""

from __future__ import annotations

import email.parser
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envpack.archive.tar_members import BLOCK, leaves
from envpack.environment import INVENTORY, MANIFEST, Entry, Package, parse_inventory
from envpack.support.text import normalise_name

MOST_FINDINGS = 1000  # that are kept; all are counted
_LONGEST_SHOWN = 1000  # characters
_SLACK = 1 << 20  # bytes; padding of an archive's end
LARGEST = 8 << 20  # bytes; no record is near that
_CONDA = re.compile(r"conda-meta/[^/]+\.json")
_PIP = re.compile(r"lib/python3\.\d+/site-packages/[^/]+\.dist-info/METADATA")


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


@dataclass(kw_only=True)
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


@dataclass(frozen=True, slots=True)
class ActualEntry:
    """A file, link or empty folder that is there."""

    kind: str
    size: int
    sha256: str
    target: str


class Comparison:
    """Takes what is found in an environment, piece by piece, and then compares.

    Attributes:
        result: what was found so far.
        seen: files, links and empty folders, by path.
        described: the two files that describe the environment, by name.

    """

    def __init__(self, path: Path) -> None:
        self.result = Inspection(path=path, form="dir")
        self.seen: dict[str, ActualEntry] = {}
        self.described: dict[str, bytes] = {}
        self._listed: dict[str, Entry] | None = None
        self._packages: dict[str, Package] = {}

    def add(self, path: str, seen: ActualEntry) -> None:
        """Take a file, a link or an empty folder."""
        path = path.rstrip("/")
        self.seen[path] = seen
        if seen.kind != "folder":
            self.result.files += 1
            self.result.size += seen.size
        if seen.kind == "link" and leaves(path, seen.target):
            self.result.find("refused", path, f"it leads out of the environment, to {seen.target}")

    def add_description(self, name: str, content: bytes) -> None:
        """Take one of the two files by which an environment describes itself."""
        self.described[name] = content
        try:
            if name == INVENTORY:
                self._listed = {entry.path: _plausible(entry) for entry in parse_inventory(content)}
            else:
                told = json.loads(content)
                self.result.told = told if isinstance(told, dict) else {}
        except (ValueError, TypeError, RecursionError) as error:
            self.result.find("changed", name, f"it is damaged: {error}")

    def add_record(self, path: str, content: bytes) -> None:
        """Take the record that an installer left of a package."""
        package = read_record(path, content)
        if package and (package.source == "conda" or package.name not in self._packages):
            self._packages[package.name] = package

    def largest_tar(self) -> int | None:
        """Most bytes that a tar file of what is listed has; ``None`` while there is no list."""
        if self._listed is None:
            return None
        return _size_of_tar(self._listed.values(), self.described)

    def finished(self) -> Inspection:
        """Compare all that was taken."""
        result = self.result
        if "bin/activate" not in self.seen:
            result.find("refused", "", "it has no bin/activate at its root")
        if self._listed is None:
            result.find("unproven", "", f"it has no {INVENTORY}, so its files cannot be verified")
        else:
            self._compare(self._listed)
            self._compare_descriptions()
        result.packages = self._told_packages() or tuple(
            sorted(self._packages.values(), key=lambda package: (package.source, package.name))
        )
        result.findings.sort(key=lambda finding: (finding.kind == "unproven", finding.path, finding.kind))
        return result

    def _compare(self, listed: dict[str, Entry]) -> None:
        result = self.result
        for path, entry in listed.items():
            seen = self.seen.get(path)
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
        for path, seen in self.seen.items():
            if path in listed or path in (MANIFEST, INVENTORY) or seen.kind == "folder":
                continue
            written_later = result.form == "dir" and "/__pycache__/" in path and path.endswith(".pyc")
            result.find("unproven" if written_later else "added", path, "it is not in the list of files")

    def _compare_descriptions(self) -> None:
        content = hashlib.sha256(self.described[INVENTORY]).hexdigest()
        if self.result.told.get("content") != content:
            self.result.find("changed", INVENTORY, f"it is not the list of files that {MANIFEST} names")

    def _told_packages(self) -> tuple[Package, ...]:
        try:
            found = tuple(Package(**package) for package in self.result.told["packages"])
        except (KeyError, TypeError):
            return ()
        plausible = _types(vars(Package(name="", version="", source="")).values())
        return found if all(_types(vars(package).values()) == plausible for package in found) else ()


def _plausible(entry: Entry) -> Entry:
    if _types(entry) != _ENTRY_TYPES:
        raise ValueError("a row of it makes no sense")
    return entry


def _types(fields: Iterable[object]) -> list[type]:
    return [type(field) for field in fields]


_ENTRY_TYPES = _types(Entry("", "file", ""))


def _difference(seen: ActualEntry, entry: Entry) -> str:
    if seen.kind != entry.kind:
        return f"a {seen.kind} now, not a {entry.kind}"
    if seen.kind == "link":
        return f"a link to {seen.target} now, not to {entry.target}"
    if seen.size != entry.size:
        return f"{seen.size} bytes now, not {entry.size}"
    return "of the same size with another content"


def _size_of_tar(entries: Iterable[Entry], described: dict[str, bytes]) -> int:
    """Most bytes that a tar file of these entries has."""
    size = _SLACK + sum(len(content) + 4 * BLOCK for content in described.values())
    for entry in entries:
        names = len(entry.path) + len(entry.target)
        size += 8 * BLOCK + 4 * names + entry.size + BLOCK
    return size


def is_record(path: str) -> bool:
    """Whether a file, by its path in an environment, is the record of a package."""
    return bool(_CONDA.fullmatch(path) or _PIP.fullmatch(path))


def read_record(path: str, content: bytes) -> Package | None:
    """The package that a record is about; ``None`` if it is none, or damaged."""
    try:
        if _CONDA.fullmatch(path):
            told = json.loads(content)
            said = {key: str(told.get(key) or "") for key in ("version", "license", "sha256")}
            return Package(
                name=normalise_name(str(told["name"])),
                version=said["version"],
                source="conda",
                license=said["license"],
                url="",
                sha256=said["sha256"],
            )
        told = email.parser.BytesHeaderParser().parsebytes(content)
        license_ = str(told["License-Expression"] or told["License"] or "").strip().partition("\n")[0]
        return (
            Package(
                name=normalise_name(str(told["Name"])), version=str(told["Version"]), source="pip", license=license_
            )
            if told["Name"]
            else None
        )
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
