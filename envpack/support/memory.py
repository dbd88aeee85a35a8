"""What was computed from files and is kept in the cache, so that it is computed once. A damaged memory is empty."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envpack.support.bounded_reading import parse_json, read_bytes
from envpack.support.replacement import replaced_file


def remembered(memory: Path) -> dict[str, Any]:
    """What `remember` wrote, and nothing else: a changed digit would make another digest of a digest."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        digest, _, text = read_bytes(memory).partition(b"\n")
        if digest.decode() == hashlib.sha256(text).hexdigest():
            return dict(parse_json(text))
    return {}


def remember(memory: Path, found: Mapping[str, Any]) -> None:
    """Replace a memory. In a cache that cannot be written to, it stays, and the next call takes longer."""
    text = json.dumps(found)
    with contextlib.suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(memory, keep=True, durable=False) as partial:
            partial.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}", encoding="utf-8")
