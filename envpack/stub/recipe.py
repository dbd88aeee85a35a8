"""Everything that decides what a stub is: target, releases, compiler and sources; and the names that follow from it.

A folder of the cache is named after a digest of all this, and verified at each use.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import envpack
from envpack.settings.releases import Release, all_releases
from envpack.settings.table import ToolchainName
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import (
    BOOST_VERSION,
    PYBIND11_VERSION,
    Toolchain,
    boost_folder,
    find_toolchain,
    pybind11_folder,
)
from envpack.support.bounded_reading import read_json, sha256_of
from envpack.support.elf import version_key
from envpack.support.entry_locks import being_made, mark_used
from envpack.support.errors import StubError, require_programs, storage_errors
from envpack.support.links_and_modes import protect
from envpack.support.progress import Progress
from envpack.support.replacement import replaced_folder, write_text

_MANIFEST = "sha256.json"


def entry_name(label: str, parts: list[str]) -> str:
    """Name of an entry: a readable label and a digest of everything that decides its content."""
    return f"{label}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}"


def ensure_entry(folder: Path, make: Callable[[Path], None], progress: Progress) -> bool:
    """Make an entry unless it exists and is intact; returns whether this call made it."""
    if is_intact(folder):
        mark_used(folder)
        return False
    waiting = partial(progress.detail, "wait for another process that makes the same entry")
    with storage_errors(folder), being_made(folder, waiting):
        if is_intact(folder):
            return False
        require_programs(folder.parent)
        with replaced_folder(folder) as made:
            make(made)
            write_text(made / _MANIFEST, json.dumps(_digests(made), indent=1, sort_keys=True))
            protect(made)
        return True


def is_intact(folder: Path) -> bool:
    """Whether an entry exists and is unchanged."""
    try:
        return not changed_stub_files(folder)
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


@dataclass(frozen=True)
class Cell:
    """One stub, alone or of a matrix: what decides its content on any machine.

    Attributes:
        target: the Python to embed.
        releases: the Triton releases to support; none for all in the sources.
        toolchain: which compiler; any but ``"auto"`` compiles even if ``triton-envpack-stubs`` has the stub.
        glibc: the oldest glibc that the stub must run with; only zig can choose.
    """

    target: StubTarget
    releases: tuple[Release, ...] = ()
    toolchain: ToolchainName = "auto"
    glibc: str = ""

    @property
    def release(self) -> Release | None:
        """The only release that it supports."""
        return self.releases[0] if len(self.releases) == 1 else None

    @property
    def identifier(self) -> str:
        """``cp310-x86_64`` for all releases, ``cp310-24.10-x86_64`` for one."""
        return "-".join((f"cp{self.target.minor.replace('.', '')}", *self.release_names, self.target.machine))

    @property
    def release_names(self) -> list[str]:
        return sorted(release.name for release in self.releases)

    @property
    def cmake_releases(self) -> str:
        """The releases for CMake, by the names in the sources; ``""`` for all."""
        return ";".join(sorted(release.name_for_stub for release in self.releases))

    @property
    def key(self) -> str:
        """Its name in a store that machines share, without the compiler of one machine."""
        target, sources = self.target, source_digest(source_folder())
        of_python = [target.minor, sha256_of(target.configuration)]
        parts = [envpack.__version__, sources, self.cmake_releases, *of_python, self.toolchain, self.glibc]
        return entry_name(self.identifier, parts)

    def recipe(self) -> Recipe:
        """How this machine compiles it."""
        images = (release.glibc for release in self.releases or all_releases().values())
        oldest = min(images, key=version_key)
        tools = find_toolchain(self.toolchain, machine=self.target.machine, glibc=self.glibc, oldest=oldest)
        return Recipe(self, tools, source_folder())


@dataclass(frozen=True)
class Recipe:
    """A stub with the compiler and the sources that it is compiled from."""

    cell: Cell
    tools: Toolchain
    sources: Path

    @property
    def identifier(self) -> str:
        return self.cell.identifier

    @property
    def entry(self) -> str:
        """Name of the stub in the cache; of the Python, the minor version and a header decide on it."""
        target = self.cell.target
        configuration = sha256_of(target.configuration)
        pybind11 = sha256_of(pybind11_folder(target.minor) / PYBIND11_VERSION)
        own = [envpack.__version__, target.minor, configuration, pybind11]
        return entry_name(self.identifier, [*own, *self._common_parts])

    @property
    def common_entry(self) -> str:
        """Name in the cache of the parts that are the same for every Python."""
        return entry_name("-".join(("common", *self.cell.release_names, self.tools.machine)), self._common_parts)

    @property
    def _common_parts(self) -> list[str]:
        boost = sha256_of(boost_folder() / BOOST_VERSION)
        return [source_digest(self.sources), self.cell.cmake_releases or "all", self.tools.identity, boost]


def source_folder() -> Path:
    """The folder with ``CMakeLists.txt`` and ``stub_src``: inside the installed package, or the checkout around it."""
    package = Path(__file__).parent.parent
    for folder in (package / "_source", package.parent):
        if (folder / "stub_src" / "main.cc").is_file() and (folder / "CMakeLists.txt").is_file():
            return folder
    what = "this copy of envpack has no stub sources"
    raise StubError("sources-missing", what, "install envpack from a wheel or a checkout", str(package))


def source_digest(folder: Path) -> str:
    """SHA-256 of names and contents of all sources of the stub, with their data and without their documentation."""
    digest = hashlib.sha256()
    walked = os.walk(folder / "stub_src")  # a build without changes does this for each model
    sources = (f"{top}/{name}" for top, _, names in walked for name in names if not name.endswith(".md"))
    for file in [f"{folder}/CMakeLists.txt", f"{folder}/envpack/releases.toml", *sorted(sources)]:
        digest.update(f"{file.removeprefix(f'{folder}/')}\0".encode())
        digest.update(hashlib.sha256(Path(file).read_bytes()).digest())
    return digest.hexdigest()
