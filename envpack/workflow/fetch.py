"""From an address in an object store to a folder that a server reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envpack.deployment import Trust, place_publication
from envpack.store import Objects, parse_location
from envpack.support.folders import whole_path
from envpack.support.progress import Progress
from envpack.support.text import counted


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Models of an object store, in a folder."""

    directory: Path
    files: int
    size: int
    command: tuple[str, ...]


def fetch_models(url: str, directory: Path, progress: Progress, *, trust: Trust | None = None) -> Fetched:
    """Copy published models to a folder, compared with what was published or signed.

    Args:
        url: address in an object store.
        directory: the folder; it is created, or replaced if envpack fetched it, or filled if it is empty.
        progress: receives the bytes.
        trust: who must have signed all models, None for anybody.

    Raises:
        UsageError: kind ``bad-store-address``.
        InputError: something there is not as it was published (``published-changed``) or signed
            (``signature-invalid``), or something else is in the folder (``output-not-ours``).
        StorageError: the store cannot be used, the disk is full, or the folder is not writable.
    """
    location = parse_location(url)
    progress.begin(f"fetch {location}")
    copied = place_publication(Objects(location), directory, progress, trust=trust)
    progress.end(f"{counted(copied.files, 'file')}, {copied.size / 1e6:.1f} MB{', signed' if trust else ''}")
    place = whole_path(directory)
    return Fetched(
        directory=place,
        files=copied.files,
        size=copied.size,
        command=("tritonserver", f"--model-repository={place}"),
    )
