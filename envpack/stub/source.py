"""Where the stub's C++ sources are, and what they are."""

from __future__ import annotations

import hashlib
from pathlib import Path

from envpack.support.errors import StubError


def source_folder() -> Path:
    """The folder with ``CMakeLists.txt`` and ``stub_src``: inside the installed package, or the checkout around it.

    Raises:
        StubError: this copy of envpack came without them.
    """
    package = Path(__file__).parent.parent
    for folder in (package / "_source", package.parent):
        if (folder / "stub_src" / "main.cc").is_file() and (folder / "CMakeLists.txt").is_file():
            return folder
    raise StubError(
        "this copy of envpack has no stub sources",
        kind="sources-missing",
        where=str(package),
        hint="install envpack from a wheel or a checkout",
    )


def source_digest(folder: Path) -> str:
    """SHA-256 over names and contents of everything that goes into the stub; its documentation does not."""
    digest = hashlib.sha256()
    sources = (path for path in (folder / "stub_src").rglob("*") if path.is_file() and path.suffix != ".md")
    files = [folder / "CMakeLists.txt", *sorted(sources)]
    for file in files:
        digest.update(f"{file.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
