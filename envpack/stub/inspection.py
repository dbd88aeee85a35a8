"""Reads the facts of a stub from its file."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from envpack.support.bounded_reading import parse_json, read_bytes
from envpack.support.elf import needed_glibc, needed_libraries, parse_elf, version_key
from envpack.support.errors import StubError
from envpack.support.platforms import machine_named

_LARGEST = 64 << 20  # bytes; a stub has 4 MB
_MOST_KNOWN = 32
_known: dict[bytes, StubFacts] = {}  # by the SHA-256 of the stub, the oldest first
_FACTS = ".envpack.facts"
_BODY = ".envpack.body"


@dataclass(frozen=True, kw_only=True)
class StubFacts:
    """What a stub requires and supports."""

    machine: str  # ``"x86_64"`` or ``"aarch64"``
    python: str  # minor version of the Python it embeds
    libpython: str  # the shared library it loads, for example ``"libpython3.8.so.1.0"``
    epochs: tuple[str, ...]  # the ABI epochs that it supports, each named after its first release
    version: str  # version of envpack that its sources belong to
    glibc: str  # newest glibc symbol version that it requires, for example ``"2.34"``
    compiler: str  # compiler that compiled it, for example ``"GNU 12.2.0"``
    numpy: tuple[int, ...]  # major versions of NumPy that it runs with
    needs: tuple[str, ...]  # shared libraries that the loader looks for when the stub starts, libpython first


def inspect_stub(path: Path) -> StubFacts:
    """Read the facts of a stub that envpack compiled.

    Raises:
        StubError: the file is missing, damaged, not an ELF file, or not a stub of envpack (``not-a-stub``).
    """
    if path.exists() and not path.is_file():
        raise _not_a_stub(path, "it is not a file")
    try:
        return _facts_of(read_bytes(path, most=_LARGEST), path)
    except FileNotFoundError:
        raise _not_a_stub(path, "there is no such file") from None
    except OSError as error:
        raise _not_a_stub(path, f"the file cannot be opened: {error.strerror}") from error
    except StubError:
        raise
    except Exception as error:  # the parser raises many kinds of errors for a damaged file
        raise _not_a_stub(path, "not a readable ELF file, or a damaged one") from error


def _facts_of(content: bytes, path: Path) -> StubFacts:
    """The facts of a stub, of which all models of a repository may have copies."""
    digest = hashlib.sha256(content).digest()
    facts = _known.get(digest)
    if facts is None:
        facts = _read(io.BytesIO(content), path)
        while len(_known) >= _MOST_KNOWN:
            del _known[next(iter(_known))]
        _known[digest] = facts
    return facts


def _read(file: BinaryIO, path: Path) -> StubFacts:
    outer = parse_elf(file)
    facts_section, body_section = outer.get_section_by_name(_FACTS), outer.get_section_by_name(_BODY)
    if facts_section is None or body_section is None:
        raise _not_a_stub(path, "it was not compiled by envpack")
    facts = _checked(parse_json(facts_section.data()))
    body = parse_elf(io.BytesIO(body_section.data()))
    needed = needed_libraries(body)
    if facts["libpython"] not in needed:
        raise _not_a_stub(path, f"its facts name {facts['libpython']}, but it requires {', '.join(needed)}")
    return StubFacts(
        machine=machine_named(outer["e_machine"]),
        python=facts["python"],
        libpython=facts["libpython"],
        epochs=tuple(facts["epochs"]),
        version=facts["version"],
        glibc=max(needed_glibc(outer), needed_glibc(body), key=version_key),
        compiler=facts["compiler"],
        numpy=tuple(facts["numpy"]),
        needs=(facts["libpython"], *sorted({*needed_libraries(outer), *needed} - {facts["libpython"]})),
    )


def _checked(facts: Any) -> dict[str, Any]:
    texts = [*(facts[name] for name in ("libpython", "python", "version", "compiler")), *facts["epochs"]]
    if not all(isinstance(text, str) for text in texts) or not all(type(major) is int for major in facts["numpy"]):
        raise TypeError("a fact of another type")
    return dict(facts)


def _not_a_stub(path: Path, why: str) -> StubError:
    return StubError("not-a-stub", f"not a stub of envpack: {why}", "build one with `envpack stub`", str(path))
