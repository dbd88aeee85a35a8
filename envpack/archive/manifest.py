"""Reads and writes the metadata of placed execution environments: in a folder, or beside an archive."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.archive.reading import is_archive, opened_archive
from envpack.archive.selection import Selection
from envpack.archive.tar_members import check_entries
from envpack.environment.inventory import INVENTORY, Entry, inventory_text, parse_inventory, read_inventory
from envpack.environment.relocation import replace_placeholder
from envpack.environment.store import Environment
from envpack.support.bounded_reading import parse_json, read_json, sha256_of
from envpack.support.entry_locks import in_use
from envpack.support.errors import EnvironmentBuildError, InputError, storage_errors
from envpack.support.folders import cache_folder
from envpack.support.links_and_modes import FILE
from envpack.support.placed_files import MANIFEST
from envpack.support.replacement import replaced_file, write_text

SCHEMA = 2
_NEXT = "next"  # SHA-256 of the archive that is about to replace the described one
_MINOR = re.compile(r"3\.[0-9]{1,2}")
# What is read of metadata, which a person or another program may have changed.
_TYPES = {
    **dict.fromkeys(("key", "content", "python", "minor", "platform", "glibc", "glibcxx", "form", "sha256"), ""),
    **dict.fromkeys(("size", "mtime_ns"), 0),
    "unpacked": {"files": 0, "size": 0},
    "selection": {"final_prefix": "", "digest": "", "of": ""},
    "packages": [{"name": "", "version": ""}],
}
_NAMED = (
    *("key", "content", "python", "minor", "platform", "glibc", "glibcxx", "numpy_abi", "cuda_libraries"),
    *("hidden_libraries", "selection", "unpacked", "packages"),
)


@dataclass(frozen=True)
class SelectedFiles:
    """The files of an environment that leave the store, and the metadata that describes exactly those."""

    entries: tuple[Entry, ...]  # the files, without manifest and inventory
    descriptions: dict[str, bytes]  # the content of manifest and inventory, by file name
    manifest: dict[str, Any]
    folder: Path  # where the store keeps manifest and inventory
    final_prefix: str = ""  # the folder that replaces the prefix placeholder, "" if it is not known


def archive_metadata_file(archive: Path) -> Path:
    """The metadata file beside an archive: ``env.tar.gz.json`` for ``env.tar.gz``."""
    return archive.with_name(f"{archive.name}.json")


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a placed folder or archive; empty if it is missing, unreadable or damaged."""
    try:
        metadata = read_json(metadata_file(path))
    except (OSError, ValueError):
        return {}
    is_sound = _has_types(metadata, _TYPES) and _MINOR.fullmatch(metadata.get("minor", "3.10"))
    return metadata if is_sound else {}


def _has_types(found: Any, like: Any) -> bool:
    """Whether a value has the types of another: a table those of the keys that both have, each row of a list all."""
    if isinstance(like, dict):
        return isinstance(found, dict) and all(_has_types(found[key], like[key]) for key in like.keys() & found.keys())
    if isinstance(like, list):
        return isinstance(found, list) and all(
            _has_types(row, like[0]) and like[0].keys() <= row.keys() for row in found
        )
    return type(found) is type(like)


def is_made_by_envpack(path: Path) -> bool:
    """Whether envpack made a folder or an archive, or an archive's metadata is all there is.

    An archive is ours if the metadata beside it describes or announces exactly this file, or if it begins with a
    manifest: a killed process may have replaced an archive and not its metadata yet.
    """
    if path.is_dir():
        return "key" in read_metadata(path)
    try:
        return is_recorded_archive(path) or _is_announced(path) or _begins_with_manifest(path)
    except FileNotFoundError:
        return "key" in read_metadata(path)
    except OSError:
        return False


def is_recorded_archive(path: Path) -> bool:
    """Whether the metadata beside an archive describes this file; it is read only if its time stamp differs."""
    metadata, status = read_metadata(path), path.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode) or metadata.get("size") != status.st_size:
        return False
    return metadata.get("mtime_ns") == status.st_mtime_ns or metadata.get("sha256") == sha256_of(path)


def announce(destination: Path, stored: Path) -> None:
    """Write beside an archive that it is about to be replaced by one of the store, whatever ends this process then."""
    following = read_metadata(stored)
    present = read_metadata(destination) if destination.exists() else {}
    announced = {**present, _NEXT: following["sha256"]} if present else following
    write_text(archive_metadata_file(destination), json.dumps(announced, indent=1, sort_keys=True) + "\n")


def _is_announced(path: Path) -> bool:
    announced = read_metadata(path).get(_NEXT)
    return announced is not None and stat.S_ISREG(path.lstat().st_mode) and announced == sha256_of(path)


def _begins_with_manifest(archive: Path) -> bool:
    if not is_archive(archive):
        return False
    try:
        with opened_archive(archive) as reader:
            return next((member.name for member in reader), "") == MANIFEST
    except InputError:
        return False


def record_in_metadata(path: Path, key: str, value: str) -> bool:
    """Add a key to the metadata of a placed folder or archive. The store and the packed files do not change."""
    metadata = read_metadata(path)
    if not metadata or metadata.get(key, "") == value:
        return False
    changed = {name: entry for name, entry in metadata.items() if name != key} | ({key: value} if value else {})
    write_text(metadata_file(path), json.dumps(changed, indent=1, sort_keys=True) + "\n")
    return True


def metadata_file(path: Path) -> Path:
    return path / MANIFEST if path.is_dir() else archive_metadata_file(path)


@contextlib.contextmanager
def selected_files(environment: Environment, selection: Selection, final_prefix: str = "") -> Iterator[SelectedFiles]:
    """The files of an environment in the store, with metadata for these alone; cached, and kept during the block."""
    name = _name_of(environment.key, environment.content, selection.digest, final_prefix)
    folder = cache_folder("selections") / name
    with storage_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with in_use(folder):
        selected = _cached(folder, final_prefix)
        if selected is None or not describes(selected.manifest, environment, selection, final_prefix):
            selected = _select(environment, selection, folder, final_prefix)
            _cache(folder, selected)
        yield selected


def _name_of(key: str, content: str, selection: str, final_prefix: str) -> str:
    """The name of a selection in the cache, by the key and the digest of the environment and that of the selection."""
    return hashlib.sha256(json.dumps([key, content, selection, SCHEMA, final_prefix]).encode()).hexdigest()[:32]


def is_cached_as(manifest: Mapping[str, Any], name: str) -> bool:
    of = manifest["selection"]
    return _name_of(manifest["key"], of["of"], of["digest"], of["final_prefix"]) == name


def _cached(folder: Path, final_prefix: str) -> SelectedFiles | None:
    try:
        descriptions = {name: (folder / name).read_bytes() for name in (MANIFEST, INVENTORY)}
        manifest = parse_json(descriptions[MANIFEST])
        if manifest["content"] != hashlib.sha256(descriptions[INVENTORY]).hexdigest():
            return None
        return SelectedFiles(parse_inventory(descriptions[INVENTORY]), descriptions, manifest, folder, final_prefix)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _cache(folder: Path, selected: SelectedFiles) -> None:
    """Cache a selection; the inventory comes last, since a selection without it does not count."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in selected.descriptions.items():
            with replaced_file(folder / name, mode=FILE, durable=False) as partial:
                partial.write_bytes(content)


def _select(environment: Environment, selection: Selection, folder: Path, final_prefix: str) -> SelectedFiles:
    all_entries, stored = _read(environment.prefix)
    entries = selection.of(all_entries)
    if final_prefix:
        entries = tuple(_finished(entry, environment.prefix, final_prefix) for entry in entries)
    check_entries(entries)
    sizes: Counter[str] = Counter()
    for entry in entries:
        sizes[entry.package] += entry.size
    size = sum(sizes.values())
    inventory = inventory_text(entries).encode()
    left_out = {"files": len(all_entries) - len(entries), "size": environment.size - size}
    manifest = {
        **stored,
        "unpacked": {"files": len(entries), "size": size},
        "content": hashlib.sha256(inventory).hexdigest(),
        "size": size,
        "packages": [{**package, "size": sizes[package["name"]]} for package in stored["packages"]],
        "selection": {**_selected(environment, selection, final_prefix), "left_out": left_out},
    }
    descriptions = {MANIFEST: json.dumps(manifest, indent=1, sort_keys=True).encode() + b"\n", INVENTORY: inventory}
    return SelectedFiles(entries, descriptions, manifest, folder, final_prefix)


def _finished(entry: Entry, prefix: Path, final_prefix: str) -> Entry:
    """The entry of a file after the final prefix has replaced the placeholder; it keeps the kind of the placeholder."""
    if not entry.placeholder:
        return entry
    content = replace_placeholder((prefix / entry.path).read_bytes(), final_prefix, entry.placeholder)
    return entry._replace(size=len(content), sha256=hashlib.sha256(content).hexdigest())


def describes(manifest: object, environment: Environment, selection: Selection, final_prefix: str = "") -> bool:
    if not isinstance(manifest, dict) or manifest.get("key") != environment.key:
        return False
    present = manifest.get("selection")
    return isinstance(present, dict) and _selected(environment, selection, final_prefix).items() <= present.items()


def holds(folder: Path, environment: Environment, selection: Selection, final_prefix: str) -> bool:
    try:
        return describes(read_json(folder / MANIFEST), environment, selection, final_prefix)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _selected(environment: Environment, selection: Selection, final_prefix: str) -> dict[str, object]:
    """What decides which files are selected, and their content: the same values describe the same files."""
    return {
        "final_prefix": final_prefix,  # replaces the prefix placeholder, "" if it is not known
        "digest": selection.digest,
        "of": environment.content,  # the whole environment
        "exclude": list(selection.exclude),
        "include": list(selection.include),
    }


def _read(prefix: Path) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    try:
        manifest = read_json(prefix / MANIFEST)
        if not all(isinstance(package, dict) and "name" in package for package in manifest["packages"]):
            raise ValueError("packages without names")
        return read_inventory(prefix), manifest
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        what = f"manifest or inventory of this environment cannot be read: {error}"
        fix = f"remove {prefix} and build again; nothing but envpack may write there"
        raise EnvironmentBuildError("store-damaged", what, fix, str(prefix)) from error


def archive_metadata(selected: SelectedFiles, **measured: object) -> str:
    """The text of the metadata file beside an archive: what it contains, and how it was made."""
    metadata: dict[str, object] = {name: selected.manifest.get(name) for name in _NAMED}
    metadata["schema"] = SCHEMA
    return json.dumps(metadata | measured, indent=1, sort_keys=True) + "\n"


# Fitted to measurements: libarchive 3.6, which servers use too, unpacks four archives of 854 to
# 11,070 files and 91 to 351 MB to ext4, on two shared cores; the fastest of three runs. The fit is within 13 % of each,
# and within a third of the fastest of eight runs, five of them on a busier machine. With /tmp as tmpfs it takes less.
_SECONDS_PER_FILE = 4.3e-5
_SECONDS_PER_BYTE = 2.8e-9
_SECONDS_PER_BYTE_UNZIPPED = 2.7e-9
_RATIO = 0.36  # compressed to uncompressed bytes, for archives that do not exist yet
_HEADER = 768  # bytes per file of a tar file: the header, and on average half a block of padding


@dataclass(frozen=True)
class Format:
    """What one format costs."""

    form: str  # ``"dir"``, ``"tar.gz"`` or ``"tar"``
    size: int  # bytes to ship; an estimate for archives that do not exist
    unpacked: int  # bytes that a server needs in ``/tmp`` for it
    unpack_seconds: float  # how much longer the first load takes than with a folder; an estimate


def format_costs(metadata: Mapping[str, Any]) -> tuple[Format, ...]:
    unpacked = metadata.get("unpacked", {"files": 0, "size": 0})
    files, size = int(unpacked.get("files", 0)), int(unpacked.get("size", 0))
    archive = int(metadata.get("size", 0)) if "form" in metadata else 0
    plain = size + files * _HEADER
    unpacking = files * _SECONDS_PER_FILE + size * _SECONDS_PER_BYTE
    return (
        Format("dir", size, 0, 0.0),
        Format(
            "tar.gz",
            archive if metadata.get("form") == "tar.gz" else int(plain * _RATIO),
            size,
            round(unpacking + size * _SECONDS_PER_BYTE_UNZIPPED, 1),
        ),
        Format("tar", archive if metadata.get("form") == "tar" else plain, size, round(unpacking, 1)),
    )
