"""Stubs that come compiled, in the package ``envpack-stubs`` that ``ci/build-prebuilt`` makes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import envpack
from envpack.stub.source import source_digest, source_folder
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import package_folder
from envpack.support.elf import version_key
from envpack.support.progress import Progress

PACKAGE = "envpack_stubs"
MANIFEST = "manifest.json"


def find_prebuilt(target: StubTarget, *, glibc: str, progress: Progress) -> Path | None:
    """A stub for all releases out of ``envpack-stubs``, if that is installed and has one that is as good as compiled.

    It must have been made from the same sources by the same version of envpack, and be as it was when it was made.

    Args:
        target: the Python to embed.
        glibc: the oldest glibc that the stub must run with; ``""`` takes that of the package.
        progress: told why what is there is not used.

    Returns:
        The file, in the package; ``None`` if there is none.
    """
    folder = package_folder(PACKAGE)
    if folder is None:
        return None
    try:
        return _fitting(folder, target, glibc)
    except _UnusableError as error:
        progress.detail(f"envpack-stubs is not used: {error}")
        return None


def manifest(stubs: dict[str, dict[str, str]]) -> str:
    """What the package says of its stubs: ``python``, ``machine``, ``glibc`` and ``sha256`` of each file."""
    made = {"envpack": envpack.__version__, "sources": source_digest(source_folder()), "stubs": stubs}
    return json.dumps(made, indent=1, sort_keys=True)


class _UnusableError(Exception):
    """What is installed must not be used."""


@dataclass(frozen=True)
class _Prebuilt:
    """One line of the manifest."""

    name: str
    python: str
    machine: str
    glibc: str
    sha256: str


def _fitting(folder: Path, target: StubTarget, glibc: str) -> Path | None:
    for stub in _stubs(folder):
        if (stub.python, stub.machine) != (target.minor, target.machine):
            continue
        if glibc and version_key(stub.glibc) > version_key(glibc):
            continue
        if _sha256(folder / stub.name) != stub.sha256:
            raise _UnusableError(f"{stub.name} is damaged or missing")
        return folder / stub.name
    return None


def _stubs(folder: Path) -> list[_Prebuilt]:
    try:
        said = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        version, sources = said["envpack"], said["sources"]
        stubs = [_Prebuilt(name, **facts) for name, facts in sorted(said["stubs"].items())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise _UnusableError(f"its {MANIFEST} is missing or damaged") from None
    if version != envpack.__version__:
        raise _UnusableError(f"it was made by envpack {version}, this is {envpack.__version__}")
    if sources != source_digest(source_folder()):
        raise _UnusableError("it was made from other sources of the stub")
    return stubs


def _sha256(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
