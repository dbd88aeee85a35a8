"""Facts about Triton releases; the data is in ``releases.toml``, beside this file."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

from envpack.errors import UsageError

DEFAULT_RELEASE = "24.10"


@dataclass(frozen=True)
class Release:
    """One Triton release.

    Attributes:
        name: release name, for example ``"24.10"``.
        server: version of the server, as ``GET /v2`` reports it.
        python: Python minor version that the release's own stub embeds.
        numpy2: whether the release's own stub works with NumPy 2.
        stub_abi: name of the wire that a stub must speak.
        image: official container image.
        glibc: version of the C library in that image.
        wheel: version of the ``nvidia-pytriton`` wheel that carries this server, or ``""``.
        runs_activate: whether the server sources the environment's ``bin/activate``.
    """

    name: str
    server: str
    python: str
    numpy2: bool
    stub_abi: str
    image: str
    glibc: str
    wheel: str
    runs_activate: bool


@functools.cache
def all_releases() -> dict[str, Release]:
    """Every release that envpack knows, by name, oldest first."""
    text = Path(__file__).with_name("releases.toml").read_text(encoding="utf-8")
    return {name: Release(name=name, **facts) for name, facts in sorted(tomllib.loads(text).items())}


def find_release(name: str, *, where: str = "") -> Release:
    """The release called ``name``; ``where`` is the file that names it, for the error.

    Raises:
        UsageError: envpack does not know it (kind ``unknown-release``).
    """
    known = all_releases()
    if name not in known:
        raise UsageError(
            f"unknown Triton release {name!r}",
            kind="unknown-release",
            where=where,
            hint=f"known: {', '.join(known)}",
        )
    return known[name]
