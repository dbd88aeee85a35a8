"""The folder that files of an environment name as their own: declared by conda's records, found, and replaced."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.conda import PREFIX_PLACEHOLDER
from envpack.environment.inventory import ReplacedFile
from envpack.environment.prefix.detect import Prefix
from envpack.environment.relocation import relocatable_script
from envpack.support.text import normalise_name

_SHEBANG = re.compile(rb"#!(?:/bin/sh\n'''exec' ['\"]?)?[ \t]*(/[^\n]+?)/bin/python[\d.]*['\"]?(?=[\s])")
_ACTIVATE = re.compile(rb"""^\s*(?:export )?VIRTUAL_ENV=['"]?(/[^'"\n$]+)""", re.MULTILINE)
_SYSTEM = {"/usr", "/usr/local", "/bin", ""}
_START = 1024  # bytes of a script in which the line that names its interpreter is
UNKNOWN = "unknown"  # who changed a file, or brought it, if no record says so


def named_prefix_paths(prefix: Prefix) -> tuple[Path, ...]:
    """Where files of an environment believe that it lies: where it is, and where it was before it was moved."""
    said = {str(prefix.root), str(prefix.root.resolve()), PREFIX_PLACEHOLDER, *_said(prefix.root / "bin")}
    return tuple(Path(place) for place in sorted(said - _SYSTEM, key=lambda one: (-len(one), one)))


def _said(folder: Path) -> Iterator[str]:
    for script in sorted(folder.iterdir()) if folder.is_dir() else ():
        if script.is_file() and not script.is_symlink():
            with script.open("rb") as content:
                start = content.read(_START)
            match = _SHEBANG.match(start)
            if match is None and script.name == "activate":
                match = _ACTIVATE.search(script.read_bytes())
            if match:
                yield os.fsdecode(match[1].rstrip())


def insert_placeholder_in_text(content: bytes, prefix_paths: Sequence[Path], *, declared: bool) -> bytes:
    """A text with the stand-in for any of some prefix_paths.

    Args:
        content: the text.
        prefix_paths: folders, the longest first.
        declared: whether the package says that the text names its prefix; others are only changed where the name of
            the folder ends, and where the folder is not one that texts name for other reasons.

    """
    if declared:
        return _any(prefix_paths).sub(PREFIX_PLACEHOLDER.encode(), content)
    distinctive = [place for place in prefix_paths if is_distinctive(place)]
    return re.sub(rb"(?<![\w.-])" + _any(distinctive).pattern + rb"(?![\w.-])", PREFIX_PLACEHOLDER.encode(), content)


def is_distinctive(place: Path) -> bool:
    """Whether a text that has this path in it means the environment: ``/env`` may be anything."""
    return len(place.parts) > 2


def insert_placeholder_in_binary(content: bytes, prefix_paths: Sequence[Path], room: int) -> bytes | None:
    """A binary with the stand-in for any of some prefix_paths, of the same length; ``None`` if it does not fit.

    Installers replace a long placeholder by the prefix and fill what is left of the string with zeros, so the zeros
    behind it are the room for another prefix.

    Args:
        content: the binary.
        prefix_paths: folders, the longest first.
        room: length of the placeholder.

    """
    name, fits = _any(prefix_paths), True

    def fit(match: re.Match[bytes]) -> bytes:
        nonlocal fits
        text = match[0].rstrip(b"\0")
        spare = sum(room - len(one) for one in name.findall(text))
        longer = name.sub(PREFIX_PLACEHOLDER.encode(), text)
        if len(match[0]) - len(text) <= max(spare, 0) or len(longer) >= len(match[0]):  # the last zero ends the string
            fits = fits and longer == text
            return match[0]
        return longer.ljust(len(match[0]), b"\0")

    changed = re.sub(name.pattern + rb"[^\0]*\0+", fit, content)
    return changed if fits else None


def restored(content: bytes, place: Path, placeholder: str, *, binary: bool) -> bytes:
    """What a file was before an installer replaced the placeholder in it by a place."""
    old, new = os.fsencode(place), os.fsencode(placeholder)
    if not binary:
        return content.replace(old, new)

    def undo(match: re.Match[bytes]) -> bytes:
        text = match[0].rstrip(b"\0")
        longer = text.replace(old, new)
        zeros = len(match[0]) - len(longer)
        return longer + b"\0" * zeros if zeros > 0 else match[0]

    return re.sub(re.escape(old) + rb"[^\0]*\0+", undo, content)


def _any(prefix_paths: Sequence[Path]) -> re.Pattern[bytes]:
    return re.compile(b"(?:" + b"|".join(re.escape(os.fsencode(place)) for place in prefix_paths) + b")")


@dataclass(frozen=True, slots=True)
class DeclaredFile:
    """What a package says of a file.

    Attributes:
        package: normalised name.
        placeholder: what the file named in place of its prefix when the package was made; ``""`` if it names none.
        binary: whether it is one, for the placeholder.
        hashes: SHA-256 that the file may have, as packed and as installed.

    """

    package: str
    placeholder: str = ""
    binary: bool = False
    hashes: tuple[str, ...] = ()


def declared_files(prefix: Prefix) -> dict[str, DeclaredFile]:
    """What packages say of their files, by path."""
    return dict(_declared(prefix))


def _declared(prefix: Prefix) -> Iterator[tuple[str, DeclaredFile]]:
    for record in prefix.records:
        name = normalise_name(record["name"])
        said = record.get("paths_data") or {}
        for declared_path in said.get("paths", ()):
            yield str(declared_path.get("_path", "")), _of(declared_path, name)


def _of(one: dict[str, Any], name: str) -> DeclaredFile:
    if str(one.get("path_type", "hardlink")) == "softlink":
        return DeclaredFile(name)
    hashes = tuple(str(one[key]) for key in ("sha256_in_prefix", "sha256") if one.get(key))
    return DeclaredFile(name, str(one.get("prefix_placeholder") or ""), one.get("file_mode") == "binary", hashes)


def changed_files(
    prefix: Prefix, declared: Mapping[str, DeclaredFile], digests: Mapping[str, str], prefix_paths: Sequence[Path]
) -> tuple[ReplacedFile, ...]:
    """Files that are not as conda's packages brought them, and that somebody else changed without a record.

    Args:
        prefix: the environment.
        declared: of `declared_files`.
        digests: SHA-256 by path, of the files that are there.
        prefix_paths: where files may believe that the environment lies.

    """
    found = []
    for path, said in declared.items():
        digest = digests.get(path)
        if digest and said.hashes and digest not in said.hashes and not _is_as_packed(prefix, path, said, prefix_paths):
            found.append(ReplacedFile(path, f"conda {said.package}", UNKNOWN))
    return tuple(found)


def _is_as_packed(prefix: Prefix, path: str, said: DeclaredFile, prefix_paths: Sequence[Path]) -> bool:
    """Whether a file differs from the package's only by where it believes to lie, as after conda-unpack."""
    if not said.placeholder:
        return False
    content = (prefix.root / path).read_bytes()
    heads: list[tuple[bytes, bytes]] = [(b"", content)]
    if content.startswith(b"#!"):  # installers word a first line anew where a kernel could not read it
        line, _, rest = relocatable_script(content, prefix_paths, minor=prefix.minor).partition(b"\n")
        if line.startswith(b"#!/usr/bin/env python"):
            names = ("python", "python3", f"python{prefix.minor}")
            heads += [(f"#!{said.placeholder}/bin/{name}\n".encode(), rest) for name in names]
    return any(
        hashlib.sha256(head + restored(body, place, said.placeholder, binary=said.binary)).hexdigest() in said.hashes
        for head, body in heads
        for place in prefix_paths
    )
