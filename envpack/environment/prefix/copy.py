"""Copying the files of an environment; its owner may go on changing them, so nothing is linked."""

from __future__ import annotations

import mmap
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.conda import PREFIX_PLACEHOLDER
from envpack.environment.inventory import PlaceholderKind
from envpack.environment.prefix.files import PrefixFile
from envpack.environment.prefix.prefix_paths import (
    DeclaredFile,
    insert_placeholder_in_binary,
    insert_placeholder_in_text,
    is_distinctive,
)
from envpack.support.elf import is_elf
from envpack.support.errors import InputError

_SECRETS = re.compile(rb'(?<=://)[^/\s"@]+@|/t/[^/\s"]+(?=/)')  # in addresses: accounts, and conda's tokens
_BYTE_CODE = re.compile(rb"^[^\n,]*(?:__pycache__(?:/[^\n,]*)?|\.pyc),[^\n]*\n", re.MULTILINE)
_UNDECLARED = DeclaredFile("")


@dataclass(frozen=True)
class CopyResult:
    """What was done to files on the way.

    Attributes:
        placeholders: how files name the stand-in now, of those that do.
        changed: files whose content is not that of the original, absolute.
        left: binaries that still name the old place, where nothing can be done about it.

    """

    placeholders: dict[str, PlaceholderKind]
    changed: set[Path]
    left: tuple[str, ...]


def copy_files(
    source: Path,
    files: Sequence[PrefixFile],
    target: Path,
    prefix_paths: Sequence[Path],
    declared: Mapping[str, DeclaredFile],
) -> CopyResult:
    """Copy files, with the stand-in for the prefix_paths that they name.

    Args:
        source: root of the environment.
        files: what to copy.
        target: folder; what is there is replaced, never written into, since it may be a link to a cache.
        prefix_paths: where files may believe that the environment lies, the longest first.
        declared: what packages say of files.

    Raises:
        InputError: kind ``prefix-unsupported``: a binary names its place without room for another.
        OSError: a file cannot be read or written.

    """
    done = CopyResult({}, set(), ())
    left = []
    for file in files:
        place = target / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        if file.target:
            place.symlink_to(_relative(file, prefix_paths))
            continue
        said = declared.get(file.path, _UNDECLARED)
        content = _rewritten(source, file, prefix_paths, said)
        if content is None:
            shutil.copyfile(source / file.path, place)
        else:
            place.write_bytes(content)
            if place.name != "RECORD":  # which has no line about itself
                done.changed.add(place)
        place.chmod(0o755 if file.program else 0o644)
        if content is not None and PREFIX_PLACEHOLDER.encode() in content:
            done.placeholders[file.path] = "binary" if said.binary else "text"
        elif content is None and _names(source / file.path, prefix_paths) and not said.placeholder:
            left.append(file.path)
    return CopyResult(done.placeholders, done.changed, tuple(left))


def _relative(link: PrefixFile, prefix_paths: Sequence[Path]) -> str:
    """Where a link points, relative to it if that is in the environment itself."""
    for place in prefix_paths:
        if link.target.startswith(f"{place}/"):
            return os.path.relpath(link.target.removeprefix(f"{place}/"), os.path.dirname(link.path) or ".")  # noqa: PTH120
    return link.target


def _rewritten(source: Path, one: PrefixFile, prefix_paths: Sequence[Path], said: DeclaredFile) -> bytes | None:
    """The new content of a file, ``None`` if it stays."""
    file = source / one.path
    if one.path.startswith("conda-meta/") and one.path.endswith(".json"):
        return _SECRETS.sub(b"", file.read_bytes())
    if one.path.endswith(".dist-info/RECORD"):
        return _BYTE_CODE.sub(b"", file.read_bytes())
    if not said.placeholder and (not _names(file, prefix_paths) or is_elf(file)):
        return None
    content = file.read_bytes()
    changed = _with_stand_in(content, file, prefix_paths, said)
    return changed if changed != content or PREFIX_PLACEHOLDER.encode() in content else None


def _with_stand_in(content: bytes, file: Path, prefix_paths: Sequence[Path], said: DeclaredFile) -> bytes:
    if not said.binary:
        is_text = bool(said.placeholder) or b"\0" not in content
        return (
            insert_placeholder_in_text(content, prefix_paths, declared=bool(said.placeholder)) if is_text else content
        )
    changed = insert_placeholder_in_binary(content, prefix_paths, len(said.placeholder))
    if changed is None:
        raise InputError(
            "this binary names the folder of the environment, and has no room for a longer name",
            kind="prefix-unsupported",
            where=str(file),
            hint=f"build from requirements instead, or install {said.package} again",
        )
    return changed


def _names(file: Path, prefix_paths: Sequence[Path]) -> bool:
    """Whether a file names one of the prefix_paths, so that nobody else could be meant."""
    with file.open("rb") as content:
        if not os.fstat(content.fileno()).st_size:
            return False
        with mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return any(mapped.find(os.fsencode(place)) >= 0 for place in prefix_paths if is_distinctive(place))
