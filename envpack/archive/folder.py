"""Places an execution environment as a folder that shares files with the store, and locks destinations.

Only one process writes to a destination at a time. It removes partial files that killed processes left there.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from envpack.archive.manifest import SelectedFiles, holds, selected_files
from envpack.archive.selection import Selection
from envpack.archive.tar_members import is_canonical
from envpack.environment.inventory import INVENTORY, Entry, parse_inventory
from envpack.environment.relocation import check_prefix, replace_placeholder
from envpack.environment.store import Environment, Index, differing, environment_in_use, read_index
from envpack.support.bounded_reading import read_bytes, read_json
from envpack.support.entry_locks import being_made
from envpack.support.errors import storage_errors
from envpack.support.folders import cache_folder
from envpack.support.links_and_modes import FILE, PROGRAM, Folders, LinkMode, Transfer, is_result_of
from envpack.support.placed_files import MANIFEST
from envpack.support.progress import SILENT, Progress
from envpack.support.replacement import remove_leftovers, replaced_folder

_LARGEST = 1 << 30  # bytes of an inventory
_COARSEST = 2_000_000_000  # nanoseconds between two time stamps of the coarsest file system, for copies


def suspect_files(folder: Path, key: str) -> tuple[Entry, ...] | None:
    """Files of a placed folder unlike their originals by size or time stamp; ``None`` if nothing lists them."""
    entries = _listed(folder)
    if entries is None:
        return None
    index = read_index(cache_folder("environments").absolute() / key)
    return tuple(
        entry
        for entry in entries
        if _is_plausible(entry) and not _looks_unchanged(f"{folder}/{entry.path}", entry, index)
    )


def _listed(folder: Path) -> tuple[Entry, ...] | None:
    announced = None
    try:
        announced = read_json(folder / MANIFEST).get("content")
        content = read_bytes(folder / INVENTORY, most=_LARGEST)
        if announced in (None, hashlib.sha256(content).hexdigest()):
            return parse_inventory(content)
    except (OSError, ValueError, AttributeError, TypeError):
        pass
    return () if announced is None else None


def changed_files(folder: Path, key: str) -> tuple[str, ...]:
    """The files of a placed folder that differ from its inventory; in place of a link may be what it leads to."""
    suspects = suspect_files(folder, key)
    if suspects is None:
        return (INVENTORY,)
    links = {entry.path: entry.target for entry in suspects if entry.kind == "link"}
    return tuple(
        path for path in differing(folder, suspects) if path not in links or not _is_copy(folder, path, links[path])
    )


def _is_copy(folder: Path, path: str, target: str) -> bool:
    """Whether something has the content of what a link in its place would lead to."""
    copy, original = folder / path, (folder / path).parent / target
    if copy.is_dir():
        return original.is_dir() and not copy.is_symlink()
    try:
        return not copy.is_symlink() and filecmp.cmp(copy, original, shallow=False)
    except OSError:
        return False


def _is_plausible(entry: Entry) -> bool:
    """Whether an entry can be one of envpack's; an inventory of others may name any path."""
    return isinstance(entry.path, str) and is_canonical(entry.path) and "\0" not in entry.path


def _looks_unchanged(path: str, entry: Entry, index: Index) -> bool:
    try:
        status = os.lstat(path)
        if entry.kind == "link":
            return stat.S_ISLNK(status.st_mode) and os.readlink(path) == entry.target  # noqa: PTH115 - text is faster
    except OSError:
        return False
    if entry.kind == "folder":
        return stat.S_ISDIR(status.st_mode)
    if not stat.S_ISREG(status.st_mode) or status.st_size != entry.size:
        return False
    if entry.path not in index:
        return True
    _, time, inode, _ = index[entry.path]
    difference = abs(status.st_mtime_ns - time)
    return difference == 0 if status.st_ino == inode else difference < _COARSEST


@contextlib.contextmanager
def locked_destination(destination: Path) -> Iterator[None]:
    """Lock ``destination`` against other writers, by a file in the cache, not beside it; and create its parent."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(destination))).hexdigest()[:32]
    with storage_errors(destination), being_made(cache_folder("locks") / name):
        destination.parent.mkdir(parents=True, exist_ok=True)
        try:
            remove_leftovers(destination)
            yield
        finally:
            remove_leftovers(destination)


def place_folder(
    environment: Environment,
    destination: Path,
    selection: Selection | None = None,
    *,
    served_as: str = "",
    link_mode: LinkMode = "auto",
    progress: Progress = SILENT,
) -> bool:
    """Place an environment as a folder with read-only files, in one step; returns whether anything was written."""
    selection = selection or Selection()
    final_prefix = (served_as or str(destination.absolute())) if environment.placeholders else ""
    check_prefix(final_prefix)

    def is_there() -> bool:
        same = holds(destination, environment, selection, final_prefix)
        return same and is_folder_of_mode(link_mode, destination, environment)

    if is_there():
        suspects = suspect_files(destination, environment.key)
        if suspects == ():
            return False
        changed = (INVENTORY,) if suspects is None else differing(destination, suspects)
        if changed:
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            progress.detail(f"{destination / changed[0]} was changed{more}; the environment is placed again")

    with environment_in_use(environment), locked_destination(destination):
        if is_there() and suspect_files(destination, environment.key) == ():
            return False
        with (
            selected_files(environment, selection, final_prefix) as selected,
            replaced_folder(destination) as partial,
        ):
            _fill(environment.prefix, partial, selected, Transfer(link_mode, destination))
    return True


def is_folder_of_mode(mode: LinkMode, folder: Path, environment: Environment) -> bool:
    """Whether a folder that holds an environment can have been placed in a mode, by the first of its shared files."""
    if mode == "auto":
        return True
    shared = (e for e in _listed(folder) or () if e.kind in ("file", "program") and not e.placeholder)
    first = next(shared, None)
    return first is None or is_result_of(mode, folder / first.path, environment.prefix / first.path)


def _fill(source: Path, target: Path, selected: SelectedFiles, transfer: Transfer) -> None:
    folders = Folders(target)
    for entry in selected.entries:
        folders.make(entry.path if entry.kind == "folder" else entry.path.rpartition("/")[0])
        if entry.kind == "link":
            transfer.link(entry.target, f"{target}/{entry.path}")
        elif entry.placeholder:
            file, copy = Path(source, entry.path), Path(target, entry.path)
            copy.write_bytes(replace_placeholder(file.read_bytes(), selected.final_prefix, entry.placeholder))
            shutil.copystat(file, copy)  # changes are detected by the time stamp
            copy.chmod(PROGRAM if entry.kind == "program" else FILE)
        elif entry.kind != "folder":
            transfer(f"{source}/{entry.path}", f"{target}/{entry.path}")
    for name in selected.descriptions:
        transfer(f"{selected.folder}/{name}", f"{target}/{name}")
