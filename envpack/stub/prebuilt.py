"""Finds compiled stubs in the package ``triton-envpack-stubs``, which ``ci/build-prebuilt`` builds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import envpack
from envpack.stub.recipe import Cell, ensure_entry, source_digest, source_folder
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import package_folder
from envpack.support.bounded_reading import read_json
from envpack.support.elf import version_key
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import Progress

DISTRIBUTION = "triton-envpack-stubs"
PACKAGE = "triton_envpack_stubs"
MANIFEST = "manifest.json"
COMPRESSED = ".zst"


def find_prebuilt(cell: Cell, cache: Path, progress: Progress) -> Path | None:
    """The intact stub for all releases from ``triton-envpack-stubs`` of this version, unless a compiler is named."""
    folder = package_folder(PACKAGE)
    if cell.releases or cell.toolchain != "auto" or folder is None:
        return None
    try:
        found = _fitting(folder, cell.target, cell.glibc)
        if found is None:
            return None
        return _unpacked(folder, found, cache / f"prebuilt-{found.name}-{found.sha256[:16]}", progress)
    except _UnusableError as error:
        progress.detail(f"{DISTRIBUTION} is not used: {error}")
        return None


def prebuilt_pythons(machine: str) -> tuple[str, ...]:
    """The Pythons for which compiled stubs are installed, oldest first; none if they cannot be used."""
    folder = package_folder(PACKAGE)
    try:
        stubs = _stubs(folder) if folder else []
    except _UnusableError:
        return ()
    return tuple(sorted((stub.python for stub in stubs if stub.machine == machine), key=version_key))


def manifest(stubs: Mapping[str, Mapping[str, str]]) -> str:
    """The manifest of the package: ``python``, ``machine``, ``glibc`` and ``sha256`` of each stub."""
    content = {"envpack": envpack.__version__, "sources": source_digest(source_folder()), "stubs": dict(stubs)}
    return json.dumps(content, indent=1, sort_keys=True)


class _UnusableError(Exception):
    """The installed package must not be used."""


@dataclass(frozen=True)
class _Prebuilt:
    name: str  # its identifier
    python: str
    machine: str
    glibc: str  # the oldest that it runs with
    sha256: str  # before compression


def _fitting(folder: Path, target: StubTarget, glibc: str) -> _Prebuilt | None:
    for stub in _stubs(folder):
        if (stub.python, stub.machine) != (target.minor, target.machine):
            continue
        if not glibc or version_key(stub.glibc) <= version_key(glibc):
            return stub
    return None


def _stubs(folder: Path) -> list[_Prebuilt]:
    try:
        content = read_json(folder / MANIFEST)
        version, sources = content["envpack"], content["sources"]
        stubs = [_Prebuilt(name, **facts) for name, facts in sorted(content["stubs"].items())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise _UnusableError(f"its {MANIFEST} is missing or damaged") from None
    if version != envpack.__version__:
        raise _UnusableError(f"it was built by envpack {version}, this is {envpack.__version__}")
    if sources != source_digest(source_folder()):
        raise _UnusableError("it was built from other sources of the stub")
    return stubs


def _unpacked(folder: Path, stub: _Prebuilt, entry: Path, progress: Progress) -> Path:
    """Unpack the stub into the cache; stubs in the package are compressed, because six of them have 10 MB."""

    def unpack(into: Path) -> None:
        content = _content(folder / f"{stub.name}{COMPRESSED}")
        if hashlib.sha256(content).hexdigest() != stub.sha256:
            raise _UnusableError(f"{stub.name} is damaged or missing")
        (into / STUB_NAME).write_bytes(content)
        (into / STUB_NAME).chmod(0o755)

    ensure_entry(entry, unpack, progress)
    return entry / STUB_NAME


def _content(file: Path) -> bytes:
    from envpack.support.zstd import ZstdError, decompress

    try:
        return decompress(file.read_bytes())
    except (OSError, ZstdError):
        return b""
