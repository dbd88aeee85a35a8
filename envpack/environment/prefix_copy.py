"""Copies the files of an environment. It never links them, because the owner may change them afterwards."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.conda.engine import PREFIX_PLACEHOLDER
from envpack.environment.inventory import UNKNOWN, PlaceholderKind, ReplacedFile
from envpack.environment.prefix_files import Prefix, PrefixFile
from envpack.environment.records import record_paths
from envpack.environment.relocation import relocatable_script
from envpack.support.bounded_reading import opened, parse_json, read_bytes
from envpack.support.elf import is_elf, runpath_of, set_runpath
from envpack.support.errors import InputError
from envpack.support.folders import real_path
from envpack.support.progress import SILENT, Progress
from envpack.support.redaction import public_url
from envpack.support.text import normalise_name

_SHEBANG = re.compile(rb"#!(?:/bin/sh\n'''exec' ['\"]?)?[ \t]*(/[^\n]+?)/bin/python[\d.]*['\"]?(?=[\s])")
_ACTIVATE = re.compile(rb"""^[ \t]*(?:export )?VIRTUAL_ENV=['"]?(/[^'"\n$]+)""", re.MULTILINE)
_SYSTEM = {"/usr", "/usr/local", "/bin", ""}
_START = 1024  # bytes of a script that contain the line with its interpreter
# What may stand before a path in a text: no part of a longer path, but an option such as -L.
_BEFORE = rb"(?:(?<![\w.-])|(?<=-[A-Za-z])(?<![\w.]-[A-Za-z]))"
_AFTER = rb"(?![\w-]|\.\w)"  # no sibling of the folder
_REST = rb"[^\0]*\0*"  # of a string, with its padding; it matches without any zero, so that no byte is scanned twice


def named_prefix_paths(prefix: Prefix) -> tuple[Path, ...]:
    """The paths that files may contain as their prefix: the present folder, and those before it was moved."""
    paths = {str(prefix.root), str(real_path(prefix.root)), PREFIX_PLACEHOLDER, *_script_paths(prefix.root / "bin")}
    return tuple(Path(path) for path in sorted(paths - _SYSTEM, key=lambda path: (-len(path), path)))


def _script_paths(folder: Path) -> Iterator[str]:
    for script in sorted(folder.iterdir()) if folder.is_dir() else ():
        if script.is_file() and not script.is_symlink():
            with opened(script) as content:
                start = content.read(_START)
            match = _SHEBANG.match(start)
            if match is None and script.name == "activate":
                match = _ACTIVATE.search(read_bytes(script))
            if match:
                yield os.fsdecode(match[1].rstrip())


def insert_placeholder_in_text(content: bytes, prefix_paths: Sequence[Path], *, declared: bool) -> bytes:
    """Replace prefix paths in a text by the placeholder; short paths only if a record declares that they are there."""
    paths = [path for path in prefix_paths if declared or is_distinctive(path)]
    return re.sub(_BEFORE + _any(paths), PREFIX_PLACEHOLDER.encode(), content)


def is_distinctive(path: Path) -> bool:
    """Whether a path is long enough to identify the environment in a text; ``/env`` may mean something else."""
    return len(path.parts) > 2


def insert_placeholder_in_binary(content: bytes, prefix_paths: Sequence[Path], room: int) -> bytes | None:
    """Replace prefix paths in a binary by the placeholder, at the same length; ``None`` if there is no room.

    Installers replace a long placeholder by the prefix and pad the string with zeros. These zeros are the room
    for another prefix. No installer wrote a string without them: it stays.
    """
    name, fits = re.compile(_any(prefix_paths)), True

    def fit(match: re.Match[bytes]) -> bytes:
        nonlocal fits
        text = match[0].rstrip(b"\0")
        spare = sum(room - len(path) for path in name.findall(text))
        longer = name.sub(PREFIX_PLACEHOLDER.encode(), text)
        if len(match[0]) - len(text) <= max(spare, 0):  # the last zero ends the string
            return match[0]
        if len(longer) >= len(match[0]):
            fits = fits and longer == text
            return match[0]
        return longer.ljust(len(match[0]), b"\0")

    changed = re.sub(name.pattern + _REST, fit, content)
    return changed if fits else None


def restored(content: bytes, path: Path, placeholder: str, *, binary: bool) -> bytes:
    old, new = os.fsencode(path), os.fsencode(placeholder)
    if not binary:
        return re.sub(_BEFORE + _any([path]), lambda _: new, content)

    def undo(match: re.Match[bytes]) -> bytes:
        text = match[0].rstrip(b"\0")
        longer = text.replace(old, new)
        zeros = len(match[0]) - len(longer)
        return longer + b"\0" * zeros if zeros > 0 else match[0]

    return re.sub(re.escape(old) + _REST, undo, content)


def _any(prefix_paths: Sequence[Path]) -> bytes:
    return b"(?:" + b"|".join(re.escape(os.fsencode(path)) for path in prefix_paths) + b")" + _AFTER


@dataclass(frozen=True, slots=True)
class DeclaredFile:
    """What a package's record declares about a file."""

    package: str  # normalised name
    placeholder: str = ""  # placeholder for the prefix in the packed file; "" if it has none
    binary: bool = False  # whether the placeholder is in a binary file
    hashes: tuple[str, ...] = ()  # SHA-256 of the file as packed and as installed


def declared_files(prefix: Prefix) -> dict[str, DeclaredFile]:
    return {
        str(path.get("_path", "")): _declaration(path, normalise_name(record["name"]))
        for record in prefix.records
        for path in record_paths(record)
    }


def _declaration(path: Mapping[str, Any], package: str) -> DeclaredFile:
    if path.get("path_type") == "softlink":
        return DeclaredFile(package)
    hashes = tuple(str(digest) for digest in (path.get("sha256_in_prefix"), path.get("sha256")) if digest)
    return DeclaredFile(package, str(path.get("prefix_placeholder") or ""), path.get("file_mode") == "binary", hashes)


def changed_files(
    prefix: Prefix, declared: Mapping[str, DeclaredFile], digests: Mapping[str, str], prefix_paths: Sequence[Path]
) -> tuple[ReplacedFile, ...]:
    """Files that differ from conda's packages without a record of the change."""
    found = []
    for path, declaration in declared.items():
        digest = digests.get(path)
        if (
            digest
            and declaration.hashes
            and digest not in declaration.hashes
            and not _is_as_packed(prefix, path, declaration, prefix_paths)
        ):
            found.append(ReplacedFile(path, f"conda {declaration.package}", UNKNOWN))
    return tuple(found)


def _is_as_packed(prefix: Prefix, file: str, declaration: DeclaredFile, prefix_paths: Sequence[Path]) -> bool:
    """Whether a file differs from the package's only by its prefix, as after conda-unpack."""
    if not declaration.placeholder:
        return False
    content = (prefix.root / file).read_bytes()
    heads: list[tuple[bytes, bytes]] = [(b"", content)]
    if content.startswith(b"#!"):  # installers rewrite a first line that is too long for the kernel
        line, _, rest = relocatable_script(content, prefix_paths, minor=prefix.minor).partition(b"\n")
        if line.startswith(b"#!/usr/bin/env python"):
            names = ("python", "python3", f"python{prefix.minor}")
            heads += [(os.fsencode(f"#!{declaration.placeholder}/bin/{name}\n"), rest) for name in names]
    return any(
        hashlib.sha256(
            head + restored(body, prefix_path, declaration.placeholder, binary=declaration.binary)
        ).hexdigest()
        in declaration.hashes
        for head, body in heads
        for prefix_path in prefix_paths
    )


@dataclass(frozen=True)
class CopyResult:
    """The result of copying files."""

    placeholders: dict[str, PlaceholderKind]  # kind of the prefix placeholder, of files that contain one now
    changed: set[Path]  # absolute paths of files whose content differs from the original
    left: list[str]  # binaries that still contain the old path, because it cannot be replaced


def copy_files(
    source: Path,
    files: Sequence[PrefixFile],
    target: Path,
    prefix_paths: Sequence[Path],
    declared: Mapping[str, DeclaredFile],
    *,
    progress: Progress = SILENT,
) -> CopyResult:
    """Copy files, with the prefix placeholder instead of the prefix paths that they contain."""
    done = CopyResult({}, set(), [])
    size = 0
    for number, file in enumerate(files, start=1):
        size += file.stamp[0]
        progress.advance(number, len(files), "files", size=size)
        copy = target / file.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        if copy.is_dir() and not copy.is_symlink():
            what, fix = "this is a link where its Python has a folder", "put the folder itself there"
            raise InputError("prefix-unsupported", what, fix, str(source / file.path))
        copy.unlink(missing_ok=True)
        if file.target:
            copy.symlink_to(_relative(file, prefix_paths))
            continue
        declaration = declared.get(file.path, DeclaredFile(""))
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
        elif content is None and _names(copy, prefix_paths) and not declaration.placeholder:
            if is_elf(copy) and _searches_from_itself(copy, target, prefix_paths):
                done.changed.add(copy)
            if _names(copy, prefix_paths):
                done.left.append(file.path)
    return done


def _searches_from_itself(binary: Path, root: Path, prefix_paths: Sequence[Path]) -> bool:
    """Let a binary find the environment's libraries by paths from its own folder; returns whether that changed it."""
    before = runpath_of(binary)
    inside = f"$ORIGIN/{os.path.relpath(root, binary.parent)}"
    after = re.sub(os.fsdecode(_any(prefix_paths)), lambda _: inside, before)
    if after != before:
        set_runpath([binary], after)
    return after != before


def _relative(link: PrefixFile, prefix_paths: Sequence[Path]) -> str:
    for path in prefix_paths:
        if link.target.startswith(f"{path}/"):
            return os.path.relpath(link.target.removeprefix(f"{path}/"), os.path.dirname(link.path) or ".")  # noqa: PTH120
    return link.target


def _rewritten(
    source: Path, copied: PrefixFile, prefix_paths: Sequence[Path], declaration: DeclaredFile
) -> bytes | None:
    file = source / copied.path
    if copied.path.startswith("conda-meta/") and copied.path.endswith(".json"):
        return _without_secrets(read_bytes(file))
    if copied.path.endswith(".dist-info/RECORD"):
        return b"".join(line for line in read_bytes(file).splitlines(keepends=True) if not _is_byte_code(line))
    if not declaration.placeholder and (not _names(file, prefix_paths) or is_elf(file)):
        return None
    content = before = file.read_bytes()
    if file.suffix == ".pth":  # in an archive, too, a line is a path from the folder of the file
        above = os.fsencode(os.path.relpath(source, file.parent))
        content = re.sub(rb"(?m)^" + _any(prefix_paths), above, content)
    content = _with_placeholder(content, file, prefix_paths, declaration)
    return content if content != before or PREFIX_PLACEHOLDER.encode() in content else None


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
    path = line.partition(b",")[0]
    return path.endswith((b".pyc", b"__pycache__")) or b"__pycache__/" in path


def _with_placeholder(content: bytes, file: Path, prefix_paths: Sequence[Path], declaration: DeclaredFile) -> bytes:
    packed = Path(declaration.placeholder)  # still there if conda-pack's archive was unpacked without conda-unpack
    if is_distinctive(packed):
        prefix_paths = sorted({packed, *prefix_paths}, key=lambda path: (-len(str(path)), path))
    if not declaration.binary:
        is_text = bool(declaration.placeholder) or b"\0" not in content
        return (
            insert_placeholder_in_text(content, prefix_paths, declared=bool(declaration.placeholder))
            if is_text
            else content
        )
    changed = insert_placeholder_in_binary(content, prefix_paths, len(declaration.placeholder))
    if changed is None:
        what = "this binary contains the folder of the environment, and has no room for a longer path"
        fix = f"build from requirements instead, or reinstall {declaration.package}"
        raise InputError("prefix-unsupported", what, fix, str(file))
    return changed


def _names(file: Path, prefix_paths: Sequence[Path]) -> bool:
    with file.open("rb") as content:
        if not os.fstat(content.fileno()).st_size:
            return False
        with mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return any(mapped.find(os.fsencode(path)) >= 0 for path in prefix_paths if is_distinctive(path))
