"""Caches folders by a digest of everything that decides their content, and verifies them at each use."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from envpack.support.bounded_reading import read_json, sha256_of
from envpack.support.entry_locks import being_made, mark_used
from envpack.support.failures import require_programs, storage_errors
from envpack.support.links_and_modes import protect
from envpack.support.progress import Progress
from envpack.support.replacement import new_folder, write_text

_MANIFEST = "sha256.json"


def entry_name(label: str, parts: list[str]) -> str:
    """Name of an entry: a readable label and a digest of everything that decides its content."""
    return f"{label}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}"


def ensure_entry(folder: Path, make: Callable[[Path], None], progress: Progress) -> bool:
    """Make an entry unless it exists and is intact; returns whether this call made it.

    If another process is making the same entry, this one waits. A killed process leaves no entry; its temporary files
    are removed when the entry is made. Reading an intact entry needs no write permission.
    """
    if is_intact(folder):
        mark_used(folder)
        return False

    def waiting() -> None:
        progress.detail("wait for another process that makes the same entry")

    with storage_errors(folder), being_made(folder, waiting):
        if is_intact(folder):
            return False
        require_programs(folder.parent)
        with new_folder(folder) as made:
            make(made)
            write_text(made / _MANIFEST, json.dumps(_digests(made), indent=1, sort_keys=True))
            protect(made)
        return True


def is_intact(folder: Path) -> bool:
    """Whether an entry exists and is unchanged."""
    try:
        expected = read_json(folder / _MANIFEST)
        return bool(expected) and _digests(folder) == expected
    except (OSError, ValueError):
        return False


def changed_stub_files(folder: Path) -> tuple[str, ...]:
    """The files of an entry that were changed, removed or added since it was made."""
    expected, found = read_json(folder / _MANIFEST), _digests(folder)
    if not isinstance(expected, dict) or not expected:
        raise ValueError("a list without digests")
    return tuple(sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)))


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != _MANIFEST)
    return {str(path.relative_to(folder)): sha256_of(path) for path in files}
