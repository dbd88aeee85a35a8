"""A lock: every package of an environment by its hash, for one target; and the digest of its requirements."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.requirements import CondaPackage, PipPackage, Requirements, Target
from envpack.support.bounded_reading import opened
from envpack.support.redaction import public_url

RECIPE = 2  # increased whenever the same lock gives another environment
_NOT_SOURCES = {".git", ".hg", ".venv", "__pycache__", "build", "dist", "node_modules"}


@dataclass(frozen=True)
class Lock:
    """Every package of an environment.

    Attributes:
        target: what they were resolved for.
        channels: addresses of the conda channels, without secrets.
        conda: conda packages, sorted by name.
        pip: wheels, sorted by name; they are installed after the conda packages.
        requirements_digest: `digest_requirements` of what it was resolved from; ``""`` if unknown.
    """

    target: Target
    channels: tuple[str, ...]
    conda: tuple[CondaPackage, ...]
    pip: tuple[PipPackage, ...]
    requirements_digest: str = ""

    @property
    def names(self) -> frozenset[str]:
        """Names of all packages."""
        return frozenset([*(package.name for package in self.conda), *(wheel.name for wheel in self.pip)])

    @property
    def key(self) -> str:
        """Name of the environment in the store. Hashes of packages are part of it, their addresses are not."""
        key_parts = {
            "recipe": RECIPE,
            "target": dataclasses.asdict(self.target),
            "conda": sorted(
                [package.name, package.version, package.build, package.sha256 or package.md5] for package in self.conda
            ),
            "pip": sorted([package.name, package.version, package.sha256] for package in self.pip),
        }
        return _digest(key_parts)[:32]

    def environment_key(self, *, strip: bool) -> str:
        """Name of the environment in the store, stripped of debug information or not."""
        return f"{self.key}-stripped" if strip else self.key


def digest_requirements(requirements: Requirements, channels: Sequence[str]) -> str:
    """Digest of requirements and channels, in hexadecimal digits; a lock fits requirements with the same digest.

    Sources of local projects are part of it; the requirements files that were read, and passwords, are not.
    """
    key_parts = {
        "conda": sorted(set(requirements.conda)),
        "pip": sorted(set(requirements.pip)),
        "constraints": sorted(set(requirements.constraints)),
        "options": [" ".join(map(public_url, option.split())) for option in requirements.pip_options],
        "projects": [_project_digest(project) for project in requirements.projects],
        **(
            {"indexes": sorted([name, public_url(url)] for name, url in requirements.indexes)}
            if requirements.indexes
            else {}
        ),
        "locked": [
            *sorted(package.sha256 or package.md5 for package in requirements.locked_conda),
            *sorted(package.sha256 for package in requirements.locked_pip),
        ],
        "channels": list(channels),
    }
    return _digest(key_parts)


def lock_key(
    requirements: Requirements,
    target: Target,
    channels: Sequence[str],
    sources: Sequence[str] = (),
    *,
    interpreter: str = "",
) -> str:
    """Name of what requirements resolve to, from all that decides it: the same whatever machine resolves them.

    The memory of one machine adds the interpreter that becomes a package; without it, all machines of a store get the
    Python of the first one.
    """
    key_parts = [dataclasses.asdict(target), digest_requirements(requirements, channels), sorted(sources)]
    return _digest([*key_parts, *([interpreter] if interpreter else [])])[:32]


def _project_digest(folder: Path) -> str:
    """Digest of a local project's sources, the same for a copy of the project elsewhere."""
    return _digest([[name, _sha256(file)] for name, file in _sources(folder)])


def _sha256(file: Path) -> str:
    with opened(file) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _sources(folder: Path) -> Iterator[tuple[str, Path]]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NOT_SOURCES and not name.endswith(".egg-info"))
        for name in sorted(files):
            file = Path(root, name)
            if file.is_file():
                yield str(file.relative_to(folder)), file


def _digest(key_parts: object) -> str:
    return hashlib.sha256(json.dumps(key_parts, sort_keys=True).encode()).hexdigest()
