"""The store of finished environments: what names them, what describes them. Cheap to import and to ask."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "envpack-environment.json"
SCHEMA = 3


@dataclass(frozen=True, kw_only=True)
class Package:
    """One installed package.

    Attributes:
        name: normalised, for example ``"scikit-learn"``.
        version: for example ``"1.5.2"``.
        source: ``"conda"`` or ``"pip"``.
        license: as the package says it, ``""`` if it does not.
        url: where it came from, without user name or password; ``""`` if unknown.
        sha256: of the downloaded file, ``""`` if unknown.
        size: bytes of its files in the environment.

    """

    name: str
    version: str
    source: str
    license: str = ""
    url: str = ""
    sha256: str = ""
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A finished environment in the store. Read it, link it, pack it; never change it.

    Attributes:
        key: names the packages that it is made of: the key of its lock.
        python: full version, for example ``"3.8.18"``.
        minor: for example ``"3.8"``.
        prefix: its folder in the store.
        packages: what is installed, conda packages first.
        glibc: the oldest C library that its files run with, for example ``"2.35"``.
        glibcxx: newest symbol version that its files need of libstdc++, for example ``"3.4.29"``; ``""`` for none.
        platform: ``"linux-64"`` or ``"linux-aarch64"``.
        size: bytes of all its files.
        content: SHA-256 of the list of its files (`envpack.environment.inventory`): same content, same digest.
        placeholders: how many files name a stand-in for the folder that the environment will be in.
        fresh: whether this call built it.

    """

    key: str
    python: str
    minor: str
    prefix: Path
    packages: tuple[Package, ...]
    glibc: str
    glibcxx: str
    platform: str
    size: int
    content: str
    placeholders: int = 0
    fresh: bool = False


def read_environment(folder: Path) -> Environment | None:
    """The environment in a folder, ``None`` if there is none or it is not complete."""
    try:
        told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        return None
    return Environment(
        key=told["key"],
        python=told["python"],
        minor=told["minor"],
        prefix=folder,
        packages=tuple(Package(**package) for package in told["packages"]),
        glibc=told["glibc"],
        glibcxx=told["glibcxx"],
        platform=told["platform"],
        size=told["size"],
        content=told["content"],
        placeholders=told["stand_ins"],
    )
