"""The store of finished environments: their keys and manifests. Cheap to import."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from envpack.support.bounded_reading import read_json
from envpack.support.entry_locks import in_use
from envpack.support.errors import EnvironmentBuildError

MANIFEST = "envpack-environment.json"
SCHEMA = 3


@dataclass(frozen=True, kw_only=True)
class Package:
    """One installed package.

    Attributes:
        name: normalised, for example ``"scikit-learn"``.
        version: for example ``"1.5.2"``.
        source: ``"conda"`` or ``"pip"``.
        license: license in the package's metadata, ``""`` if it has none.
        url: where it was downloaded from, without user name or password; ``""`` if unknown.
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


class PackageEntry(TypedDict):
    """A package in a manifest: the fields of `Package`."""

    name: str
    version: str
    source: str
    license: str
    url: str
    sha256: str
    size: int


class ReplacedFileEntry(TypedDict):
    """A replaced file in a manifest: the fields of `envpack.environment.inventory.ReplacedFile`."""

    path: str
    before: str
    after: str


class EnvironmentManifest(TypedDict, total=False):
    """The content of `MANIFEST`. Every key is written; all are optional because a file on disk may be damaged.

    Attributes:
        schema: version of this schema.
        key: key of the lock.
        python: full version.
        minor: minor version.
        platform: conda's name of the platform.
        glibc: oldest glibc that the files run with.
        glibcxx: newest symbol version of libstdc++ that the files require, ``""`` for none.
        numpy_abi: major version of NumPy, ``""`` without NumPy.
        cuda_libraries: file names of CUDA libraries.
        hidden_libraries: file names of system libraries that the loader finds in the environment first.
        size: bytes of all files.
        content: SHA-256 of the inventory.
        stand_ins: number of files that contain the prefix placeholder.
        packages: installed packages.
        changed_hands: files that one package installed and another replaced or removed.
    """

    schema: int
    key: str
    python: str
    minor: str
    platform: str
    glibc: str
    glibcxx: str
    numpy_abi: str
    cuda_libraries: list[str]
    hidden_libraries: list[str]
    size: int
    content: str
    stand_ins: int
    packages: list[PackageEntry]
    changed_hands: list[ReplacedFileEntry]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A finished environment in the store. It may be read, linked and packed, but never changed.

    Attributes:
        key: key of its lock, which identifies its packages.
        python: full version, for example ``"3.8.18"``.
        minor: for example ``"3.8"``.
        prefix: its folder in the store.
        packages: installed packages, conda packages first.
        glibc: the oldest version of the C library that its files run with, for example ``"2.35"``.
        glibcxx: newest symbol version of libstdc++ that its files require, for example ``"3.4.29"``; ``""`` for none.
        platform: ``"linux-64"`` or ``"linux-aarch64"``.
        size: bytes of all its files.
        content: SHA-256 of its inventory (`envpack.environment.inventory`); the same content has the same digest.
        placeholders: number of files that contain the prefix placeholder.
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


_TEXTS = ("key", "python", "minor", "glibc", "glibcxx", "platform", "content")
_COUNTS = ("size", "stand_ins")


def read_environment(folder: Path) -> Environment | None:
    """The environment in a folder, ``None`` if there is none, or it is not complete or damaged."""
    try:
        manifest = read_json(folder / MANIFEST)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        return None
    try:
        return _from_manifest(manifest, folder)
    except (KeyError, TypeError):
        return None


@contextlib.contextmanager
def environment_in_use(environment: Environment) -> Iterator[None]:
    """Keep an environment in the store during the block."""
    with in_use(environment.prefix):
        if not (environment.prefix / MANIFEST).exists():
            raise disappeared(environment.prefix)
        yield


def disappeared(folder: Path) -> EnvironmentBuildError:
    """The error for an environment that another program removed from the store."""
    return EnvironmentBuildError(
        "the environment disappeared from the store",
        kind="environment-broken",
        where=str(folder),
        hint="let nothing else write to the cache while it builds, and build again",
    )


def _from_manifest(manifest: dict[str, Any], folder: Path) -> Environment:
    if not all(isinstance(manifest[name], str) for name in _TEXTS) or not all(
        type(manifest[n]) is int for n in _COUNTS
    ):
        raise TypeError("a value of another type")
    return Environment(
        key=manifest["key"],
        python=manifest["python"],
        minor=manifest["minor"],
        prefix=folder,
        packages=tuple(Package(**package) for package in manifest["packages"]),
        glibc=manifest["glibc"],
        glibcxx=manifest["glibcxx"],
        platform=manifest["platform"],
        size=manifest["size"],
        content=manifest["content"],
        placeholders=manifest["stand_ins"],
    )
