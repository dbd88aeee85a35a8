"""Everything that decides what a stub is: target, releases, compiler and sources; and the names that follow from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import envpack
from envpack.settings import Release
from envpack.stub.cache import entry_name
from envpack.stub.target import StubTarget
from envpack.stub.toolchain import (
    BOOST_VERSION,
    PYBIND11_VERSION,
    Toolchain,
    boost_folder,
    header_folders,
    pybind11_folder,
)
from envpack.support.errors import StubError

# None means all releases in the sources.
Releases = Sequence[Release] | None


@dataclass(frozen=True)
class Recipe:
    """The inputs of a stub.

    Attributes:
        target: the Python to embed.
        releases: the Triton releases to support, ``None`` for all.
        tools: the compiler.
        sources: folder of the sources.
    """

    target: StubTarget
    releases: Releases
    tools: Toolchain
    sources: Path

    @property
    def identifier(self) -> str:
        """The identifier of the stub: ``cp310-x86_64`` for all releases, ``cp310-24.10-x86_64`` for one."""
        return identifier(self.target, self.releases)

    @property
    def entry(self) -> str:
        """Name of the stub in the cache.

        Of the Python only the minor version and the configuration header count, since the stub depends on nothing else.
        """
        configuration = _sha256(self.target.configuration)
        pybind11 = _sha256(pybind11_folder(self.target.minor) / PYBIND11_VERSION)
        own = [envpack.__version__, self.target.minor, configuration, pybind11]
        return entry_name(self.identifier, [*own, *self._common_parts])

    @property
    def common_entry(self) -> str:
        """Name in the cache of the parts that are the same for every Python."""
        return entry_name("-".join(("common", *_release_names(self.releases))), self._common_parts)

    @property
    def _common_parts(self) -> list[str]:
        boost = _sha256(boost_folder() / BOOST_VERSION)
        return [source_digest(self.sources), self.cmake_releases, self.tools.identity, boost]

    @property
    def cmake_releases(self) -> str:
        """The releases for CMake, by the names in the sources."""
        return ";".join(sorted(release.name_for_stub for release in self.releases or ())) or "all"

    @property
    def header_folders(self) -> list[Path]:
        """Folders that hold ``include/pybind11`` and ``include/boost``."""
        return header_folders(self.target.minor)


def stub_key(target: StubTarget, releases: Releases, *, toolchain: str, glibc: str) -> str:
    """Name of a stub in a store that machines share: what decides its content, without the compiler of one machine."""
    return entry_name(
        identifier(target, releases),
        [
            envpack.__version__,
            source_digest(source_folder()),
            ";".join(sorted(release.name_for_stub for release in releases or ())),
            target.minor,
            _sha256(target.configuration),
            toolchain,
            glibc,
        ],
    )


def identifier(target: StubTarget, releases: Releases) -> str:
    """``cp310-x86_64`` for all releases, ``cp310-24.10-x86_64`` for one."""
    return "-".join((f"cp{target.minor.replace('.', '')}", *_release_names(releases), target.machine))


def describe_releases(releases: Releases) -> str:
    """The releases as text for messages."""
    return f"Triton {', '.join(_release_names(releases))}" if releases else "every Triton"


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _release_names(releases: Releases) -> list[str]:
    return sorted(release.name for release in releases or ())


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
    sources = (path for path in (folder / "stub_src").rglob("*") if path.is_file() and path.suffix != ".md")
    files = [folder / "CMakeLists.txt", folder / "envpack/releases.toml", *sorted(sources)]
    for file in files:
        digest.update(f"{file.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
