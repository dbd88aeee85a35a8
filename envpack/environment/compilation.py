"""Compiles the Python modules of an environment, and chooses each package's key in the cache of byte code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from envpack.conda import bytecode_path, compile_packages
from envpack.environment.inventory import Owners
from envpack.lock import Lock
from envpack.support.text import normalise_name

_UNCHECKED_HASH = b"\x01\0\0\0"  # flags of byte code that Python never compares with its source, PEP 552


def compile_sources(prefix: Path, owners: Owners, lock: Lock, *, python: Path, cache: Path) -> None:
    """Write byte code for the modules of all packages, except those that will change when the environment is placed."""
    minor = lock.target.python
    _remove_stale(prefix, owners, minor)
    sources: dict[str, list[str]] = {}
    for path, package in owners.of.items():
        if _is_wanted(prefix, path, minor, owners):
            sources.setdefault(package, []).append(path)
    hashes = _hashes(lock, owners)
    named = {hashes.get(name) or _digest(prefix, paths): paths for name, paths in sources.items()}
    compile_packages(prefix, named, minor=minor, python=python, cache=cache)


def _hashes(lock: Lock, owners: Owners) -> dict[str, str]:
    """The hashes of the packages whose modules are those of the package alone, by name.

    A file that several packages install belongs to the one that was installed last, but installers write several
    packages at once.
    """
    found = {normalise_name(package.name): package.sha256 or package.md5 for package in lock.conda}
    found |= {package.name: package.sha256 for package in lock.pip}
    shared = {owner.partition(" ")[2] for file in owners.changed for owner in (file.before, file.after)}
    return {name: digest for name, digest in found.items() if name not in shared}


def _remove_stale(prefix: Path, owners: Owners, minor: str) -> None:
    """Remove a package's byte code that Python would run in place of a source with the real prefix."""
    for path in owners.placeholders:
        if path.endswith(".py"):
            compiled = prefix / bytecode_path(path, minor)
            if _is_unchecked(compiled):
                compiled.unlink()


def _is_wanted(prefix: Path, path: str, minor: str, owners: Owners) -> bool:
    """Whether a file is a module without byte code of its package; envpack's Python packages contain such byte code."""
    return (
        path.endswith(".py")
        and path.startswith(f"lib/python{minor}/")
        and path not in owners.placeholders  # byte code would keep the placeholder
        and (prefix / path).is_file()
        and not _is_unchecked(prefix / bytecode_path(path, minor))
    )


def _is_unchecked(compiled: Path) -> bool:
    try:
        with compiled.open("rb") as content:
            return content.read(8)[4:] == _UNCHECKED_HASH
    except FileNotFoundError:
        return False


def _digest(prefix: Path, sources: Sequence[str]) -> str:
    """Digest of sources that are not known by the hash of a package; a name alone would match other versions."""
    digests = [[path, hashlib.sha256((prefix / path).read_bytes()).hexdigest()] for path in sorted(sources)]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()
