"""What conda's records say of the files of an environment, and what has become of them since."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.environment.inventory import ChangedHands
from envpack.environment.prefix.detect import Prefix
from envpack.environment.prefix.prefix_paths import restored
from envpack.environment.relocation import relocatable_script
from envpack.support.package_names import normalised

UNKNOWN = "unknown"  # who changed a file, or brought it, if no record says so


@dataclass(frozen=True, slots=True)
class Declared:
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


def declared_files(prefix: Prefix) -> dict[str, Declared]:
    """What packages say of their files, by path."""
    return dict(_declared(prefix))


def _declared(prefix: Prefix) -> Iterator[tuple[str, Declared]]:
    for record in prefix.records:
        name = normalised(record["name"])
        said = record.get("paths_data") or {}
        for one in said.get("paths", ()):
            yield str(one.get("_path", "")), _of(one, name)


def _of(one: dict[str, Any], name: str) -> Declared:
    if str(one.get("path_type", "hardlink")) == "softlink":
        return Declared(name)
    hashes = tuple(str(one[key]) for key in ("sha256_in_prefix", "sha256") if one.get(key))
    return Declared(name, str(one.get("prefix_placeholder") or ""), one.get("file_mode") == "binary", hashes)


def drifted(
    prefix: Prefix, declared: Mapping[str, Declared], digests: Mapping[str, str], places: Sequence[Path]
) -> tuple[ChangedHands, ...]:
    """Files that are not as conda's packages brought them, and that somebody else changed without a record.

    Args:
        prefix: the environment.
        declared: of `declared_files`.
        digests: SHA-256 by path, of the files that are there.
        places: where files may believe that the environment lies.

    """
    found = []
    for path, said in declared.items():
        digest = digests.get(path)
        if digest and said.hashes and digest not in said.hashes and not _is_as_packed(prefix, path, said, places):
            found.append(ChangedHands(path, f"conda {said.package}", UNKNOWN))
    return tuple(found)


def _is_as_packed(prefix: Prefix, path: str, said: Declared, places: Sequence[Path]) -> bool:
    """Whether a file differs from the package's only by where it believes to lie, as after conda-unpack."""
    if not said.placeholder:
        return False
    content = (prefix.root / path).read_bytes()
    heads: list[tuple[bytes, bytes]] = [(b"", content)]
    if content.startswith(b"#!"):  # installers word a first line anew where a kernel could not read it
        line, _, rest = relocatable_script(content, places, minor=prefix.minor).partition(b"\n")
        if line.startswith(b"#!/usr/bin/env python"):
            names = ("python", "python3", f"python{prefix.minor}")
            heads += [(f"#!{said.placeholder}/bin/{name}\n".encode(), rest) for name in names]
    return any(
        hashlib.sha256(head + restored(body, place, said.placeholder, binary=said.binary)).hexdigest() in said.hashes
        for head, body in heads
        for place in places
    )
