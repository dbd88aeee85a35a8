"""Lists the files and packages of an execution environment, with SHA-256, owner and origin."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from envpack.conda.engine import PREFIX_PLACEHOLDER
from envpack.environment.records import (
    conda_record_files,
    is_from_uv,
    read_conda_record,
    read_record_rows,
    record_paths,
)
from envpack.support.bounded_reading import digest_of, parse_json, read_bytes, read_text
from envpack.support.errors import InputError
from envpack.support.placed_files import MANIFEST
from envpack.support.pool import map_batches
from envpack.support.progress import SILENT, Progress
from envpack.support.replacement import write_text
from envpack.support.text import normalise_name

if TYPE_CHECKING:
    from email.message import Message

    from envpack.lock.lockfile import Lock

INVENTORY = "envpack-files.json"
SCHEMA = 1
OWN = "envpack"  # owner of files that belong to no package
UNKNOWN = "unknown"  # owner of files of an environment that was taken over, which no record lists
_LARGEST = 1 << 30  # bytes of an inventory; one of a hundred thousand files has 20 MB
_NAME_HINT = "choose another version of the package that installs it"
_UNLISTED = {"CACHEDIR.TAG", ".lock", INVENTORY, MANIFEST}

Kind = Literal["file", "program", "link", "folder"]
PlaceholderKind = Literal["", "text", "binary"]
_LONGEST_LICENSE = 100  # characters; some packages contain the whole text instead of a name


class Entry(NamedTuple):
    """A file, link or empty folder of an environment. A tuple, because there are tens of thousands."""

    path: str  # relative to the environment's root, with ``/``
    kind: Kind  # ``"program"`` is an executable file; ``"folder"`` is an empty folder, others have no entry
    package: str  # normalised name of the package that installed it last, `OWN` for envpack itself
    size: int = 0  # bytes of the content; 0 for links and folders
    sha256: str = ""  # SHA-256 of the content; ``""`` for links and folders
    target: str = ""  # target of a link, as written in the link
    # ``"text"`` or ``"binary"`` if the file contains `envpack.conda.engine.PREFIX_PLACEHOLDER`, which is replaced by
    # the folder of the environment once that is known; otherwise ``""``.
    placeholder: PlaceholderKind = ""


@dataclass(frozen=True)
class ReplacedFile:
    """A file of one package that another package replaced or removed."""

    path: str  # as in `Entry`
    before: str  # source and name of the package that installed it, for example "conda numpy"
    after: str  # source and name of the package that replaced it; "" if the file was removed


@dataclass(frozen=True)
class Owners:
    """The owners of files according to installation records, by path."""

    of: dict[str, str]  # package of each file
    changed: tuple[ReplacedFile, ...]  # files that belonged to another package before
    placeholders: dict[str, PlaceholderKind]  # kind of the prefix placeholder, of files that contain one


def find_owners(prefix: Path, minor: str) -> Owners:
    """Read the installation records: conda's first, since pip packages are installed after them."""
    last: dict[str, tuple[str, str]] = {}
    changed: list[ReplacedFile] = []
    records = {file.name: read_conda_record(file) for file in conda_record_files(prefix)}
    for name, path in _conda_claims(records):
        _claim(last, changed, path, ("conda", name))
    for name, path in _pip_claims(prefix, minor, set(last)):
        _claim(last, changed, path, ("pip", name))
    for path, (source, name) in last.items():
        if not os.path.lexists(f"{prefix}/{path}"):
            changed.append(ReplacedFile(path, f"{source} {name}", ""))
    changed.sort(key=lambda replaced: (replaced.path, replaced.before))
    placeholders = {path: mode for path, mode in _conda_placeholders(records.values()) if last[path][0] == "conda"}
    return Owners({path: name for path, (_, name) in last.items()}, tuple(changed), placeholders)


def _claim(last: dict[str, tuple[str, str]], changed: list[ReplacedFile], path: str, package: tuple[str, str]) -> None:
    before = last.get(path)
    if before and before != package:
        changed.append(ReplacedFile(path, " ".join(before), " ".join(package)))
    last[path] = package


def take_inventory(prefix: Path, owners: Owners, progress: Progress = SILENT) -> tuple[Entry, ...]:
    """List and hash every file of an environment with several threads; sorted by path."""
    paths = sorted(_walk(str(prefix)))
    entries: list[Entry] = []
    size = 0
    for batch in map_batches(lambda path: _entry(prefix, path, owners), paths):
        entries += batch
        size += sum(entry.size for entry in batch)
        progress.advance(len(entries), len(paths), "files", size=size)
    return tuple(entries)


def write_inventory(prefix: Path, entries: Sequence[Entry]) -> str:
    content = inventory_text(entries)
    write_text(prefix / INVENTORY, content)
    return hashlib.sha256(content.encode()).hexdigest()


def inventory_text(entries: Sequence[Entry]) -> str:
    encode = json.JSONEncoder(
        ensure_ascii=False, check_circular=False
    ).encode  # `dumps` creates an encoder for each call
    text = ",\n".join(map(encode, entries))
    return f'{{"schema": {SCHEMA}, "files": [\n{text}\n]}}\n'


def read_inventory(prefix: Path) -> tuple[Entry, ...]:
    return parse_inventory(read_bytes(prefix / INVENTORY, most=_LARGEST))


def parse_inventory(content: bytes) -> tuple[Entry, ...]:
    inventory = parse_json(content)
    if not isinstance(inventory, dict) or inventory.get("schema") != SCHEMA:
        raise ValueError("not an inventory of a known version")
    try:
        return tuple(map(Entry._make, inventory["files"]))
    except (TypeError, KeyError) as error:
        raise ValueError("a damaged inventory") from error


def require_text(name: str, where: str, hint: str) -> None:
    """Refuse the name of a file, or the target of a link, that is not UTF-8, as records of files are."""
    try:
        name.encode()
    except UnicodeEncodeError:
        what = "a name is not valid UTF-8, which Triton's files and envpack's records need"
        raise InputError("name-not-text", what, hint, ascii(where)) from None


def _walk(root: str, below: str = "") -> Iterator[str]:
    """Paths of files, links and empty folders. Text, not `Path`: there may be a hundred thousand."""
    with os.scandir(f"{root}/{below}") as found:
        for item in found:
            path = f"{below}{item.name}"
            require_text(item.name, path, _NAME_HINT)
            if path in _UNLISTED or (below == "conda-meta/" and path.endswith(".lock")):
                continue
            if item.is_dir(follow_symlinks=False):
                inside = False
                for inner in _walk(root, f"{path}/"):
                    inside = True
                    yield inner
                if not inside:
                    yield f"{path}/"
            else:
                yield path


def _entry(prefix: Path, path: str, owners: Owners) -> Entry:
    entry = read_entry(prefix, path)
    require_text(entry.target, path, _NAME_HINT)
    placeholder: PlaceholderKind = owners.placeholders.get(path, "")
    if placeholder and (entry.target or PREFIX_PLACEHOLDER.encode() not in (prefix / path).read_bytes()):
        placeholder = ""  # relocated, as in scripts
    package = owners.of.get(path) or owners.of.get(_source_of(path), OWN)
    return entry._replace(package=package, placeholder=placeholder)


def read_entry(root: Path, path: str) -> Entry:
    """A file, a link or, with a slash at the end, an empty folder as it is, without the package that it belongs to."""
    if path.endswith("/"):
        return Entry(path[:-1], "folder", "")
    file = f"{root}/{path}"
    if os.path.islink(file):  # noqa: PTH114 - text is faster
        return Entry(path, "link", "", target=os.readlink(file))  # noqa: PTH115
    with open(file, "rb", buffering=0) as content:  # noqa: PTH123
        status = os.fstat(content.fileno())
        digest = digest_of(content)
    return Entry(path, "program" if status.st_mode & 0o100 else "file", "", status.st_size, digest)


def _source_of(path: str) -> str:
    folder, _, name = path.rpartition("/__pycache__/")
    return f"{folder}/{name.partition('.')[0]}.py" if folder and name.endswith(".pyc") else path


def _conda_claims(records: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for file, record in records.items():
        name = normalise_name(record["name"])
        yield name, f"conda-meta/{file}"
        for path in record.get("files", ()):
            yield name, path


def _conda_placeholders(records: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, PlaceholderKind]]:
    for record in records:
        files = set(record.get("files", ()))
        for entry in record_paths(record):
            if entry.get("prefix_placeholder") and entry.get("_path") in files:
                yield entry["_path"], "binary" if entry.get("file_mode") == "binary" else "text"


def _pip_claims(prefix: Path, minor: str, of_conda: set[str]) -> Iterator[tuple[str, str]]:
    site = f"lib/python{minor}/site-packages"
    for record in sorted((prefix / site).glob("*.dist-info/RECORD")):
        folder = f"{site}/{record.parent.name}"
        if f"{folder}/RECORD" in of_conda and not is_from_uv(record):
            continue  # conda's record lists the same files
        name = normalise_name(record.parent.name.partition("-")[0])
        for row in read_record_rows(record):
            yield name, os.path.normpath(f"{site}/{row[0]}")


@dataclass(frozen=True, kw_only=True)
class Package:
    """One installed package."""

    name: str  # normalised, for example ``"scikit-learn"``
    version: str  # for example ``"1.5.2"``
    source: str  # ``"conda"`` or ``"pip"``
    license: str = ""  # license in the package's metadata, ``""`` if it has none
    url: str = ""  # where it was downloaded from, without user name or password; ``""`` if unknown
    sha256: str = ""  # of the downloaded file, ``""`` if unknown
    size: int = 0  # bytes of its files in the environment


def installed_packages(prefix: Path, minor: str, entries: Sequence[Entry], lock: Lock) -> tuple[Package, ...]:
    """The packages of an environment, conda packages first, then by name."""
    sizes: Counter[str] = Counter()
    for entry in entries:
        sizes[entry.package] += entry.size
    origins = {package.name: (_origin(package.url), package.sha256) for package in lock.pip}
    records = [read_conda_record(file) for file in conda_record_files(prefix)]
    found = {package.name: package for package in (_of_conda(record, sizes) for record in records)}
    of_conda = {path for record in records for path in record.get("files", ())}
    for metadata in sorted((prefix / "lib" / f"python{minor}" / "site-packages").glob("*.dist-info/METADATA")):
        if str(metadata.relative_to(prefix)) not in of_conda:
            package = _of_pip(metadata, sizes, origins)
            found[package.name] = package  # replaces a conda package that pip installed over
    return tuple(sorted(found.values(), key=lambda package: (package.source, package.name)))


def _of_conda(record: Mapping[str, Any], sizes: Counter[str]) -> Package:
    name = normalise_name(record["name"])
    fields = {key: str(record.get(key) or "") for key in ("version", "license", "url", "sha256")}
    return Package(name=name, source="conda", size=sizes[name], **fields)


def _origin(url: str) -> str:
    """A URL; of a local file only its name, since its folder is private."""
    return url.rpartition("/")[2] if url.startswith("file:") else url


def _of_pip(metadata: Path, sizes: Counter[str], origins: Mapping[str, tuple[str, str]]) -> Package:
    import email.parser

    headers = email.parser.HeaderParser().parsestr(read_text(metadata, errors="replace"))
    name = normalise_name(str(headers["Name"]))
    url, sha256 = origins.get(name, ("", ""))
    return Package(
        name=name,
        version=str(headers["Version"]),
        source="pip",
        license=_license(headers),
        url=url,
        sha256=sha256,
        size=sizes[name],
    )


def _license(metadata: Message) -> str:
    text = str(metadata["License-Expression"] or metadata["License"] or "").strip()
    if text and len(text) <= _LONGEST_LICENSE and "\n" not in text:
        return text
    classified = [
        str(line).rpartition(" :: ")[2] for line in metadata.get_all("Classifier", ()) if "License ::" in line
    ]
    return ", ".join(classified)
