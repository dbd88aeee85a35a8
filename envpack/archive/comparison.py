"""Compares what an execution environment contains with what its own manifest and inventory list."""

from __future__ import annotations

import email.parser
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envpack.archive.tar_members import BLOCK, escaping_links, leaves
from envpack.environment.inventory import INVENTORY, Entry, Package, parse_inventory
from envpack.environment.prefix_files import holds_credentials
from envpack.support.bounded_reading import parse_json
from envpack.support.placed_files import MANIFEST
from envpack.support.text import normalise_name

MOST_FINDINGS = 1000  # findings that are listed; all are counted
_LONGEST_SHOWN = 1000  # characters
_SLACK = 1 << 20  # bytes of padding at the end of an archive
LARGEST = 8 << 20  # bytes of an installation record; real ones are far smaller
_CONDA = re.compile(r"conda-meta/[^/]+\.json")
_PIP = re.compile(r"lib/python3\.\d+/site-packages/[^/]+\.dist-info/METADATA")
# Files at fixed places in an environment of another system.
_OF_OTHER_SYSTEMS = {"macOS": re.compile(r"lib/libpython3\.\d+\.dylib"), "Windows": re.compile(r"python\.exe")}


@dataclass(frozen=True)
class Difference:
    """One difference between an execution environment and its description, or one entry that servers reject."""

    # "changed", "missing", "added": different from the inventory; "refused": servers reject it; "secret": a file for
    # passwords; "unproven": nothing to compare with, an error only with strict
    kind: str
    path: str  # path of the file, "" for the environment as a whole
    reason: str  # one sentence without a full stop


@dataclass(kw_only=True)
class Inspection:
    """The result of inspecting an execution environment."""

    path: Path  # folder or archive
    form: str  # ``"dir"``, ``"tar.gz"`` or ``"tar"``
    # The manifest of the environment; empty if it has none that can be read.
    manifest: dict[str, Any] = field(default_factory=dict)
    packages: tuple[Package, ...] = ()  # the installed packages
    files: int = 0  # number of files and links
    size: int = 0  # bytes of their content
    sha256: str = ""  # SHA-256 of an archive, ``""`` for a folder
    verified: int = 0  # number of files that match the inventory
    findings: list[Difference] = field(default_factory=list)  # the first `MOST_FINDINGS` differences
    count: dict[str, int] = field(default_factory=dict)  # number of all differences, by kind

    def find(self, kind: str, path: str, reason: str) -> None:
        self.count[kind] = self.count.get(kind, 0) + 1
        path, reason = path[:_LONGEST_SHOWN], reason[:_LONGEST_SHOWN]
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Difference(kind, path, reason))

    def is_good(self, *, strict: bool = False) -> bool:
        """Whether there is no finding; without ``strict`` what cannot be verified does not count."""
        return not any(strict or kind != "unproven" for kind in self.count)


class Comparison:
    """Collects the entries of an environment one by one, then compares them with the inventory."""

    def __init__(self, path: Path) -> None:
        self.result = Inspection(path=path, form="dir")  # the findings so far
        self.actual: dict[str, Entry] = {}  # files, links and empty folders as they are, by path
        self.descriptions: dict[str, bytes] = {}  # the content of manifest and inventory, by file name
        self._listed: dict[str, Entry] | None = None
        self._packages: dict[str, Package] = {}

    def add(self, seen: Entry) -> None:
        path = seen.path
        self.actual[path] = seen
        if seen.kind != "folder":
            self.result.files += 1
            self.result.size += seen.size
        if seen.kind in ("file", "program") and holds_credentials(path):
            self.result.find("secret", path, "tools keep passwords and tokens in a file of this name")

    def add_description(self, name: str, content: bytes) -> None:
        self.descriptions[name] = content
        try:
            if name == INVENTORY:
                self._listed = {entry.path: _plausible(entry) for entry in parse_inventory(content)}
            else:
                manifest = parse_json(content)
                self.result.manifest = manifest if isinstance(manifest, dict) else {}
        except (ValueError, TypeError, RecursionError) as error:
            self.result.find("changed", name, f"it is damaged: {error}")

    def add_record(self, path: str, content: bytes) -> None:
        package = read_record(path, content)
        if package and (package.source == "conda" or package.name not in self._packages):
            self._packages[package.name] = package

    def largest_tar(self) -> int | None:
        """Upper bound for the size of a tar file of the listed files, in bytes; ``None`` without an inventory."""
        if self._listed is None:
            return None
        size = _SLACK + sum(len(content) + 4 * BLOCK for content in self.descriptions.values())
        for entry in self._listed.values():
            size += 9 * BLOCK + 4 * (len(entry.path) + len(entry.target)) + entry.size
        return size

    def find_refused(self) -> None:
        links = {path: seen.target for path, seen in self.actual.items() if seen.kind == "link"}
        for path in escaping_links(links):
            through = "" if leaves(path, links[path]) else ", through another link"
            self.result.find("refused", path, f"the link leaves the environment: {links[path]}{through}")
        if made_on := system_of(self.actual):
            self.result.find("refused", "", f"it is of {made_on}, and servers run on Linux")
        elif "bin/activate" not in self.actual:
            self.result.find("refused", "", "it has no bin/activate at its root")

    def finished(self) -> Inspection:
        result = self.result
        self.find_refused()
        if self._listed is None:
            result.find("unproven", "", f"it has no {INVENTORY}, so its files cannot be verified")
        else:
            self._compare(self._listed)
            content = hashlib.sha256(self.descriptions[INVENTORY]).hexdigest()
            if result.manifest.get("content") != content:
                result.find("changed", INVENTORY, f"its SHA-256 differs from the one in {MANIFEST}")
        result.packages = self._manifest_packages() or tuple(
            sorted(self._packages.values(), key=lambda package: (package.source, package.name))
        )
        result.findings.sort(key=lambda finding: (finding.kind == "unproven", finding.path, finding.kind))
        return result

    def _compare(self, listed: dict[str, Entry]) -> None:
        result = self.result
        for path, entry in listed.items():
            seen = self.actual.get(path)
            if seen is None:
                if entry.kind != "folder" or result.form == "dir":
                    result.find("missing", path, f"a file of {entry.package} is missing")
            elif seen != entry._replace(package="", placeholder=""):
                result.find("changed", path, f"a file of {entry.package} is {_difference(seen, entry)}")
            else:
                result.verified += 1
        for path, seen in self.actual.items():
            if path in listed or path in (MANIFEST, INVENTORY) or seen.kind == "folder":
                continue
            written_later = result.form == "dir" and "/__pycache__/" in path and path.endswith(".pyc")
            result.find("unproven" if written_later else "added", path, "it is not in the inventory")

    def _manifest_packages(self) -> tuple[Package, ...]:
        try:
            found = tuple(Package(**package) for package in self.result.manifest["packages"])
        except (KeyError, TypeError):
            return ()
        plausible = _types(vars(Package(name="", version="", source="")).values())
        return found if all(_types(vars(package).values()) == plausible for package in found) else ()


def _plausible(entry: Entry) -> Entry:
    if _types(entry) != _ENTRY_TYPES:
        raise ValueError("a row has fields of the wrong type")
    return entry


def _types(fields: Iterable[object]) -> list[type]:
    return [type(field) for field in fields]


_ENTRY_TYPES = _types(Entry("", "file", ""))


def _difference(seen: Entry, entry: Entry) -> str:
    if seen.kind != entry.kind:
        return f"a {seen.kind} now, not a {entry.kind}"
    if seen.kind == "link":
        return f"a link to {seen.target} now, not to {entry.target}"
    if seen.size != entry.size:
        return f"{seen.size} bytes now, not {entry.size}"
    return "of the same size, with other content"


def system_of(paths: Iterable[str]) -> str:
    """The other system than Linux that an environment with these files is of: ``"Windows"``, ``"macOS"``, or ``""``."""
    near = [path for path in paths if path.startswith(("lib/libpython", "python."))]
    return next((name for name, file in _OF_OTHER_SYSTEMS.items() if any(map(file.fullmatch, near))), "")


def is_record(path: str) -> bool:
    return bool(_CONDA.fullmatch(path) or _PIP.fullmatch(path))


def read_record(path: str, content: bytes) -> Package | None:
    try:
        if _CONDA.fullmatch(path):
            record = parse_json(content)
            fields: dict[str, Any] = {key: str(record.get(key) or "") for key in ("version", "license", "sha256")}
            return Package(name=normalise_name(str(record["name"])), source="conda", **fields)
        metadata = email.parser.BytesHeaderParser().parsebytes(content)
        if not metadata["Name"]:
            return None
        license_ = str(metadata["License-Expression"] or metadata["License"] or "").strip().partition("\n")[0]
        name = normalise_name(str(metadata["Name"]))
        return Package(name=name, version=str(metadata["Version"]), source="pip", license=license_)
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
