"""What is installed in a prefix, from the records that the installers left there."""

from __future__ import annotations

import email.parser
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from email.message import Message
from pathlib import Path

from envpack.environment.inventory import Entry
from envpack.environment.store import Package
from envpack.lock import Lock
from envpack.support.package_names import normalised

_LONGEST_LICENSE = 100  # characters; some packages give the whole text in place of a name


def installed_packages(prefix: Path, minor: str, entries: Sequence[Entry], lock: Lock) -> tuple[Package, ...]:
    """The packages of an environment, conda packages first, then by name.

    Args:
        prefix: root of the environment.
        minor: its Python minor version.
        entries: its files, which say how large each package is.
        lock: where its packages came from.

    """
    sizes: Counter[str] = Counter()
    for entry in entries:
        sizes[entry.package] += entry.size
    origins = {one.name: (_origin(one.url), one.sha256) for one in lock.pip}
    records = [
        json.loads(record.read_text(encoding="utf-8")) for record in sorted((prefix / "conda-meta").glob("*.json"))
    ]
    found = {package.name: package for package in (_of_conda(record, sizes) for record in records)}
    of_conda = {str(path) for record in records for path in record.get("files", ())}
    for metadata in sorted((prefix / "lib" / f"python{minor}" / "site-packages").glob("*.dist-info/METADATA")):
        if str(metadata.relative_to(prefix)) not in of_conda:
            package = _of_pip(metadata, sizes, origins)
            found[package.name] = package  # also in place of one of conda's, over which pip has installed it
    return tuple(sorted(found.values(), key=lambda package: (package.source, package.name)))


def _of_conda(record: dict[str, object], sizes: Counter[str]) -> Package:
    name = normalised(str(record["name"]))
    told = {key: str(record.get(key) or "") for key in ("version", "license", "url", "sha256")}
    return Package(
        name, told["version"], "conda", told["license"], url=told["url"], sha256=told["sha256"], size=sizes[name]
    )


def _origin(url: str) -> str:
    """An address, or only the name of a file of this machine: where it lay is nobody else's business."""
    return url.rpartition("/")[2] if url.startswith("file:") else url


def _of_pip(metadata: Path, sizes: Counter[str], origins: Mapping[str, tuple[str, str]]) -> Package:
    with metadata.open(encoding="utf-8", errors="replace") as content:
        told = email.parser.HeaderParser().parse(content)
    name = normalised(str(told["Name"]))
    url, sha256 = origins.get(name, ("", ""))
    return Package(name, str(told["Version"]), "pip", _license(told), url, sha256, sizes[name])


def _license(metadata: Message) -> str:
    said = str(metadata["License-Expression"] or metadata["License"] or "").strip()
    if said and len(said) <= _LONGEST_LICENSE and "\n" not in said:
        return said
    classified = [
        str(line).rpartition(" :: ")[2] for line in metadata.get_all("Classifier", ()) if "License ::" in line
    ]
    return ", ".join(classified)
