"""Facts about Triton releases, read from ``envpack/releases.toml``, from which CMake makes a header of the stub."""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.support.errors import UsageError

_YEAR_AND_MONTH = r"\d\d\.(?:0[1-9]|1[0-2])"


@dataclass(frozen=True, kw_only=True)
class Release:
    """One Triton release.

    Attributes:
        name: release name, year and month, for example ``"24.10"``. Names sort by age.
        server: version of the server in the response to ``GET /v2``; ``""`` for a release newer than envpack.
        stub_abi: ABI epoch that a stub must implement, named after the first release that uses it.
        python: Python minor version of the official image, which the release's own stub embeds.
        numpy2: whether the release's own stub works with NumPy 2; if not, its responses are silently empty.
        image: official container image.
        glibc: version of the C library in that image.
        glibcxx: newest symbol version of the libstdc++ in that image.
        cuda: version of CUDA in that image.
        wheel: newest version of the ``nvidia-pytriton`` wheel that carries this server, or ``""``.
        runs_activate: whether the server sources the environment's ``bin/activate``.
        takes_folders: whether the server accepts a folder as an environment; if not, it must be an archive.
        fetches_archives: whether the server fetches an archive of S3 that is not in the model's folder.
        strict_archives: whether the server rejects archives with absolute names, with ``..``, or with members below a
            symbolic link.
        ninth_argument: the ninth argument of a stub: ``"none"``, ``"platform"`` (of the model's
            configuration), or ``"runtime-folder"`` (of a backend that is itself written in Python, else ``DEFAULT``).
    """

    name: str
    server: str
    stub_abi: str
    python: str
    numpy2: bool
    image: str
    glibc: str
    glibcxx: str
    cuda: str
    wheel: str
    runs_activate: bool
    takes_folders: bool
    fetches_archives: bool
    strict_archives: bool
    ninth_argument: str

    @property
    def known(self) -> bool:
        """Whether envpack has facts about this release; if not, they are those of the newest known release."""
        return bool(self.server)

    @property
    def name_for_stub(self) -> str:
        """Its name in the release file of a stub, which must be a name that the stub knows.

        That is the ABI epoch for a release that envpack does not know or whose ABI the user overrides.
        """
        return self.name if all_releases().get(self.name) == self else self.stub_abi

    @property
    def warning(self) -> str:
        """A warning for the user about an unknown release; ``""`` for a known one."""
        if self.known:
            return ""
        return (
            f"Triton {self.name} is newer than this envpack: envpack assumes that it behaves like {newest().name},"
            f" and the stub uses the ABI of {self.stub_abi}"
        )


@functools.cache
def all_releases() -> dict[str, Release]:
    """Every release that envpack knows, by name, oldest first."""
    import tomllib  # most commands that fail early need no release

    data = tomllib.loads((Path(__file__).parents[1] / "releases.toml").read_text(encoding="utf-8"))
    facts: dict[str, Any] = {}
    releases = {}
    for name, own in sorted(data["releases"].items()):
        facts |= data["since"].get(name, {})
        image = facts["image"].format(release=name)
        releases[name] = Release(**(facts | {"wheel": ""} | own | {"name": name, "image": image}))
    return releases


def newest() -> Release:
    return list(all_releases().values())[-1]


def all_abis() -> tuple[str, ...]:
    """The names of all ABI epochs that a stub can implement, oldest first."""
    return tuple(dict.fromkeys(release.stub_abi for release in all_releases().values()))


def release_of_server(version: str) -> Release | None:
    """The release whose server reports this version, for example ``"2.51.0"``."""
    return next((release for release in all_releases().values() if release.server == version), None)


def find_release(name: str, *, abi: str | None = None, where: str = "") -> Release:
    """The release called ``name``.

    A release that is newer than all that envpack knows gets the facts of the newest; its `Release.known` is false and
    its `Release.warning` is not empty.

    Args:
        name: year and month, for example ``"24.10"``.
        abi: ABI epoch for its stub, instead of the one that envpack knows or assumes.
        where: the file that names the release, for the error.

    Raises:
        UsageError: kind ``unknown-release``: there is no such release, or it is too old; kind ``unknown-abi``.
    """
    release = all_releases().get(name) or _later_than_known(name)
    if release is None:
        raise UsageError("unknown-release", f"unknown Triton release {name!r}", _release_hint(name), where)
    if abi is None:
        return release
    if abi not in all_abis():
        raise UsageError("unknown-abi", f"unknown stub ABI {abi!r}", _abi_hint(abi))
    return dataclasses.replace(release, stub_abi=abi)


def release_for_stub(name: str, *, abi: str, where: str = "") -> Release:
    """`find_release` for what needs a stub. A release that envpack does not know has a layout that was never tried."""
    release = find_release(name, abi=abi or None, where=where)
    if release.known or abi:
        return release
    last = newest()
    reason = f"Triton {name} is newer than {last.name}, the last release whose stub layout was checked"
    fix = f"use a newer envpack, or accept the layout of {last.name} unchecked: --set abi={last.stub_abi}"
    raise UsageError("unknown-release", reason, fix, where)


def _later_than_known(name: str) -> Release | None:
    last = newest()
    if not re.fullmatch(_YEAR_AND_MONTH, name) or name < last.name:
        return None
    return dataclasses.replace(last, name=name, server="", wheel="", image=last.image.replace(last.name, name))


def _release_hint(name: str) -> str:
    """The hint for an unknown release: the oldest supported one, similar names, or the format of a name."""
    oldest, last = next(iter(all_releases())), newest().name
    if re.fullmatch(_YEAR_AND_MONTH, name):
        return f"the oldest release that envpack supports is {oldest}: use a server of that release or a later one"
    if similar := _similar(name):
        return f"write {' or '.join(similar)}; in envpack.toml a release needs quotes"
    return f"a release is a year and a month, {oldest} to {last} or later; `envpack releases` lists them"


def _similar(name: str) -> list[str]:
    """Known releases for a similar name: 24.1, v24.10, 24.10-py3, or the version of a server."""
    year, _, month = name.partition(".")
    by_server = release_of_server(name.removeprefix("v"))
    guesses = [f"{name}0", f"{year}.0{month}", *re.findall(_YEAR_AND_MONTH, name), by_server.name if by_server else ""]
    return [guess for guess in dict.fromkeys(guesses) if guess in all_releases()]


def _abi_hint(abi: str) -> str:
    if release := all_releases().get(abi):
        return f"Triton {release.name} uses that of {release.stub_abi}"
    return f"an ABI is named after the first release that uses it: {', '.join(all_abis())}"
