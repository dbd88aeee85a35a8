"""What is said about an environment that leaves the store: inside of it, and beside its archive."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.archive.selection import Selection
from envpack.archive.tar_members import check_entries
from envpack.environment import (
    INVENTORY,
    MANIFEST,
    OWN,
    Entry,
    Environment,
    inventory_text,
    parse_inventory,
    read_inventory,
    replace_placeholder,
)
from envpack.support.cache_locations import cache_root
from envpack.support.errors import EnvironmentBuildError
from envpack.support.replacement import replaced_file, write_text
from envpack.support.storage_errors import storage_errors

SCHEMA = 2
_NAMED = (
    *("key", "content", "python", "minor", "platform", "glibc", "glibcxx", "numpy_abi", "cuda_libraries"),
    *("hidden_libraries", "selection", "unpacked", "packages"),
)


@dataclass(frozen=True)
class SelectedFiles:
    """The part of an environment that leaves the store, and its own description.

    Attributes:
        entries: its files, without the two that describe it.
        described: the two files that describe it, by name.
        told: what the first of them says.
        place: the folder where the store keeps the two.
        final_prefix: the folder that files name which have a stand-in for it, ``""`` while it is not known.

    """

    entries: tuple[Entry, ...]
    described: dict[str, bytes]
    told: dict[str, Any]
    place: Path
    final_prefix: str = ""

    def own_entries(self) -> tuple[Entry, ...]:
        """Entries for the two files that describe it; their digests are of no use to anybody."""
        return tuple(Entry(name, "file", OWN, len(content)) for name, content in self.described.items())


def archive_metadata_file(archive: Path) -> Path:
    """The file beside an archive that says what is in it: ``env.tar.gz.json``."""
    return archive.with_name(f"{archive.name}.json")


def read_metadata(place: Path) -> dict[str, Any]:
    """The metadata of a placed folder or archive; empty if there is none that can be read."""
    try:
        metadata = json.loads(metadata_file(place).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def record_in_metadata(place: Path, key: str, value: str) -> bool:
    """Record something about one placed folder or archive, without a change to the store or to what is packed.

    Args:
        place: the folder or archive; without metadata nothing is recorded.
        key: one that the store's manifest does not use.
        value: ``""`` removes the key.

    Returns:
        Whether the metadata changed.

    Raises:
        OSError: it cannot be written.

    """
    metadata = read_metadata(place)
    if not metadata or metadata.get(key, "") == value:
        return False
    changed = {name: entry for name, entry in metadata.items() if name != key} | ({key: value} if value else {})
    write_text(metadata_file(place), json.dumps(changed, indent=1, sort_keys=True) + "\n")
    return True


def metadata_file(place: Path) -> Path:
    """The file that describes a placed folder or archive: in the folder, or beside the archive."""
    return place / MANIFEST if place.is_dir() else archive_metadata_file(place)


def select_files(environment: Environment, selection: Selection, final_prefix: str = "") -> SelectedFiles:
    """Choose the files of an environment in the store, and describe exactly those. What was selected is remembered.

    Args:
        environment: in the store.
        selection: which of its files.
        final_prefix: the folder that it will be in, as the server sees it; ``""`` if nobody knows.

    Raises:
        UsageError: kind ``bad-pattern``.
        EnvironmentBuildError: a server would refuse one of the names, or what the store says of itself is damaged.

    """
    told = [environment.key, environment.content, selection.digest, SCHEMA, final_prefix]
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]
    place = cache_root() / "selections" / digest
    selected = _kept(place, final_prefix)
    if selected is None:
        selected = _select(environment, selection, place, final_prefix)
        _keep(place, selected)
    return selected


def _kept(place: Path, final_prefix: str) -> SelectedFiles | None:
    """What was selected before; ``None`` if it was not, or is damaged."""
    try:
        described = {name: (place / name).read_bytes() for name in (MANIFEST, INVENTORY)}
        told = json.loads(described[MANIFEST])
        if told["content"] != hashlib.sha256(described[INVENTORY]).hexdigest():
            return None
        return SelectedFiles(parse_inventory(described[INVENTORY]), described, told, place, final_prefix)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _keep(place: Path, selected: SelectedFiles) -> None:
    """Write the list of files last: without the right one the rest is nothing."""
    with storage_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        for name, content in selected.described.items():
            with replaced_file(place / name, durable=False) as partial:
                partial.write_bytes(content)


def _select(environment: Environment, selection: Selection, place: Path, final_prefix: str) -> SelectedFiles:
    all_of_them, told = _read(environment.prefix)
    entries = selection.of(all_of_them)
    if final_prefix:
        entries = tuple(_finished(entry, environment.prefix, final_prefix) for entry in entries)
    check_entries(entries)
    sizes: Counter[str] = Counter()
    for entry in entries:
        sizes[entry.package] += entry.size
    size = sum(sizes.values())
    inventory = inventory_text(entries).encode()
    told |= {
        "unpacked": {"files": len(entries), "size": size},
        "content": hashlib.sha256(inventory).hexdigest(),
        "size": size,
        "packages": [package | {"size": sizes[package["name"]]} for package in told["packages"]],
        "selection": _selected(environment, selection, final_prefix)
        | {"left_out": {"files": len(all_of_them) - len(entries), "size": environment.size - size}},
    }
    described = {MANIFEST: json.dumps(told, indent=1, sort_keys=True).encode() + b"\n", INVENTORY: inventory}
    return SelectedFiles(entries, described, told, place, final_prefix)


def _finished(entry: Entry, prefix: Path, final_prefix: str) -> Entry:
    """The entry of a file as it will be with its folder in it; it still says that it had a stand-in."""
    if not entry.placeholder:
        return entry
    content = replace_placeholder((prefix / entry.path).read_bytes(), final_prefix, entry.placeholder)
    return entry._replace(size=len(content), sha256=hashlib.sha256(content).hexdigest())


def describes(told: object, environment: Environment, selection: Selection, final_prefix: str = "") -> bool:
    """Whether a description (`SelectedFiles.told`, read back) is of this environment and this choice of its files."""
    if not isinstance(told, dict) or told.get("key") != environment.key:
        return False
    present = told.get("selection")
    return isinstance(present, dict) and _selected(environment, selection, final_prefix).items() <= present.items()


def holds(folder: Path, environment: Environment, selection: Selection, final_prefix: str) -> bool:
    """Whether a folder says that it holds this choice of an environment's files, finished for that place."""
    try:
        told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return describes(told, environment, selection, final_prefix)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _selected(environment: Environment, selection: Selection, final_prefix: str) -> dict[str, object]:
    return {
        "final_prefix": final_prefix,
        "digest": selection.digest,
        "of": environment.content,
        "exclude": list(selection.exclude),
        "include": list(selection.include),
    }


def _read(prefix: Path) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    try:
        told = json.loads((prefix / MANIFEST).read_text(encoding="utf-8"))
        if not all(isinstance(package, dict) and "name" in package for package in told["packages"]):
            raise ValueError("packages without names")
        return read_inventory(prefix), told
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise EnvironmentBuildError(
            f"the store does not know the files of this environment: {error}",
            kind="store-damaged",
            where=str(prefix),
            hint=f"remove {prefix} and build again; nothing but envpack may write there",
        ) from error


def archive_metadata(selected: SelectedFiles, **measured: object) -> str:
    """The text of the file beside an archive: what is inside, and what the archive itself is."""
    told = {name: selected.told.get(name) for name in _NAMED}
    told["schema"] = SCHEMA
    return json.dumps(told | measured, indent=1, sort_keys=True) + "\n"
