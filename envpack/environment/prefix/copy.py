"""Copies the files of an environment. It never links them, because the owner may change them afterwards."""

from __future__ import annotations

import json
import mmap
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.conda import PREFIX_PLACEHOLDER
from envpack.environment.inventory import PlaceholderKind
from envpack.environment.prefix.files import PrefixFile
from envpack.environment.prefix.prefix_paths import (
    DeclaredFile,
    insert_placeholder_in_binary,
    insert_placeholder_in_text,
    is_distinctive,
)
from envpack.support.bounded_reading import parse_json, read_bytes
from envpack.support.elf import is_elf
from envpack.support.errors import InputError
from envpack.support.progress import NoProgress, Progress
from envpack.support.redaction import public_url

_UNDECLARED = DeclaredFile("")


@dataclass(frozen=True)
class CopyResult:
    """The result of copying files.

    Attributes:
        placeholders: kind of the prefix placeholder, of files that contain one now.
        changed: absolute paths of files whose content differs from the original.
        left: binaries that still contain the old path, because it cannot be replaced.
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
    *,
    progress: Progress | None = None,
) -> CopyResult:
    """Copy files, with the prefix placeholder instead of the prefix paths that they contain."""
    done = CopyResult({}, set(), ())
    left = []
    progress = progress or NoProgress()
    size = 0
    for number, file in enumerate(files, start=1):
        size += file.stamp[0]
        progress.advance(number, len(files), "files", size=size)
        copy = target / file.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)
        if file.target:
            copy.symlink_to(_relative(file, prefix_paths))
            continue
        declaration = declared.get(file.path, _UNDECLARED)
        content = _rewritten(source, file, prefix_paths, declaration)
        if content is None:
            shutil.copyfile(source / file.path, copy)
        else:
            copy.write_bytes(content)
            if copy.name != "RECORD":  # RECORD has no line about itself
                done.changed.add(copy)
        copy.chmod(0o755 if file.program else 0o644)
        if content is not None and PREFIX_PLACEHOLDER.encode() in content:
            done.placeholders[file.path] = "binary" if declaration.binary else "text"
        elif content is None and _names(source / file.path, prefix_paths) and not declaration.placeholder:
            left.append(file.path)
    return CopyResult(done.placeholders, done.changed, tuple(left))


def _relative(link: PrefixFile, prefix_paths: Sequence[Path]) -> str:
    """The target of a link, relative if it is in the environment."""
    for path in prefix_paths:
        if link.target.startswith(f"{path}/"):
            return os.path.relpath(link.target.removeprefix(f"{path}/"), os.path.dirname(link.path) or ".")  # noqa: PTH120
    return link.target


def _rewritten(
    source: Path, copied: PrefixFile, prefix_paths: Sequence[Path], declaration: DeclaredFile
) -> bytes | None:
    """The new content of a file, ``None`` if it does not change."""
    file = source / copied.path
    if copied.path.startswith("conda-meta/") and copied.path.endswith(".json"):
        return _without_secrets(read_bytes(file))
    if copied.path.endswith(".dist-info/RECORD"):
        return b"".join(line for line in read_bytes(file).splitlines(keepends=True) if not _is_byte_code(line))
    if not declaration.placeholder and (not _names(file, prefix_paths) or is_elf(file)):
        return None
    content = file.read_bytes()
    changed = _with_placeholder(content, file, prefix_paths, declaration)
    return changed if changed != content or PREFIX_PLACEHOLDER.encode() in content else None


def _without_secrets(record: bytes) -> bytes:
    """Conda's record of a package, with public addresses; unchanged if all of its addresses are public."""
    found = parse_json(record)
    public = _public(found)
    return record if public == found else json.dumps(public, indent=2).encode()


def _public(value: Any) -> Any:
    if isinstance(value, str):
        return public_url(value) if "://" in value else value
    if isinstance(value, list):
        return [_public(item) for item in value]
    return {key: _public(item) for key, item in value.items()} if isinstance(value, dict) else value


def _is_byte_code(line: bytes) -> bool:
    """Whether a line of a ``RECORD`` is about byte code, or the folder for it."""
    path = line.partition(b",")[0]
    return path.endswith((b".pyc", b"__pycache__")) or b"__pycache__/" in path


def _with_placeholder(content: bytes, file: Path, prefix_paths: Sequence[Path], declaration: DeclaredFile) -> bytes:
    if not declaration.binary:
        is_text = bool(declaration.placeholder) or b"\0" not in content
        return (
            insert_placeholder_in_text(content, prefix_paths, declared=bool(declaration.placeholder))
            if is_text
            else content
        )
    changed = insert_placeholder_in_binary(content, prefix_paths, len(declaration.placeholder))
    if changed is None:
        raise InputError(
            "this binary contains the folder of the environment, and has no room for a longer path",
            kind="prefix-unsupported",
            where=str(file),
            hint=f"build from requirements instead, or reinstall {declaration.package}",
        )
    return changed


def _names(file: Path, prefix_paths: Sequence[Path]) -> bool:
    """Whether a file contains one of the distinctive prefix paths."""
    with file.open("rb") as content:
        if not os.fstat(content.fileno()).st_size:
            return False
        with mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return any(mapped.find(os.fsencode(path)) >= 0 for path in prefix_paths if is_distinctive(path))
