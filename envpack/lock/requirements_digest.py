"""What was asked of a lock, as one digest: a lock answers the requirements that have the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from envpack.requirements import Requirements
from envpack.support.redaction import public_url

_NOT_SOURCES = {".git", ".hg", ".venv", "__pycache__", "build", "dist", "node_modules"}


def digest_requirements(requirements: Requirements, channels: Sequence[str]) -> str:
    """Names requirements and the channels that they are looked for in; files on the way do not count, nor secrets."""
    told = {
        "conda": sorted(set(requirements.conda)),
        "pip": sorted(set(requirements.pip)),
        "constraints": sorted(set(requirements.constraints)),
        "options": [" ".join(map(public_url, option.split())) for option in requirements.pip_options],
        "projects": [_project_digest(project) for project in requirements.projects],
        "locked": [
            *sorted(one.sha256 or one.md5 for one in requirements.locked_conda),
            *sorted(one.sha256 for one in requirements.locked_pip),
        ],
        "channels": list(channels),
    }
    return _digest(told)


def _project_digest(folder: Path) -> str:
    """Names the sources of a local project; reads them, since a copy elsewhere is the same project."""
    return _digest([[name, hashlib.sha256(file.read_bytes()).hexdigest()] for name, file in _sources(folder)])


def _sources(folder: Path) -> Iterator[tuple[str, Path]]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NOT_SOURCES and not name.endswith(".egg-info"))
        for name in sorted(files):
            file = Path(root, name)
            if file.is_file():
                yield str(file.relative_to(folder)), file


def _digest(told: object) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
