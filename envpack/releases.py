"""Facts about Triton releases; the data is in ``releases.toml``, beside this file."""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.support.errors import UsageError

DEFAULT_RELEASE = "24.10"

_YEAR_AND_MONTH = r"\d\d\.(?:0[1-9]|1[0-2])"


@dataclass(frozen=True)
class Release:
    """One Triton release.

    Attributes:
        name: release name, year and month, for example ``"24.10"``. Names sort by age.
        server: version of the server, as ``GET /v2`` reports it; ``""`` for a release newer than envpack.
        stub_abi: name of the wire that a stub must speak: the first release that speaks it.
        python: Python minor version of the official container, which the release's own stub embeds.
        numpy2: whether the release's own stub works with NumPy 2; if not, its answers are empty without an error.
        image: official container image.
        glibc: version of the C library in that image.
        glibcxx: newest symbol version of the libstdc++ in that image.
        cuda: version of CUDA in that image.
        wheel: newest version of the ``nvidia-pytriton`` wheel that carries this server, or ``""``.
        runs_activate: whether the server sources the environment's ``bin/activate``.
        takes_folders: whether an environment may be a folder; if not, it must be an archive.
        strict_archives: whether the server refuses archives with absolute names, with ``..``, or with members that
            lie behind a symbolic link.
        ninth_argument: what the server gives a stub as its ninth argument: ``"none"``, ``"platform"`` (of the model's
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
    strict_archives: bool
    ninth_argument: str

    @property
    def known(self) -> bool:
        """Whether envpack has facts about this very release; if not, they are those of the newest that it knows."""
        return bool(self.server)

    @property
    def name_for_stub(self) -> str:
        """How a release file names it to a stub: by a name that the stub knows.

        That is its own; but the wire's for a release that envpack does not know, and where a wire was chosen for it.
        """
        return self.name if all_releases().get(self.name) == self else self.stub_abi

    @property
    def warning(self) -> str:
        """What the user should be told about an unknown release; ``""`` for a known one."""
        if self.known:
            return ""
        return (
            f"Triton {self.name} is newer than this envpack: it is taken to be like {newest().name},"
            f" and the stub speaks the ABI of {self.stub_abi}"
        )


@functools.cache
def all_releases() -> dict[str, Release]:
    """Every release that envpack knows, by name, oldest first."""
    data = tomllib.loads(Path(__file__).with_name("releases.toml").read_text(encoding="utf-8"))
    facts: dict[str, Any] = {}
    found = {}
    for name, own in sorted(data["releases"].items()):
        facts |= data["since"].get(name, {})
        image = facts["image"].format(release=name)
        found[name] = Release(name=name, **{"wheel": "", **facts, **own, "image": image})
    return found


def newest() -> Release:
    """The newest release that envpack knows."""
    return list(all_releases().values())[-1]


def all_abis() -> tuple[str, ...]:
    """The names of all wires that a stub can speak, oldest first."""
    return tuple(dict.fromkeys(release.stub_abi for release in all_releases().values()))


def release_of_server(version: str) -> Release | None:
    """The release whose server reports this version, for example ``"2.51.0"``."""
    return next((release for release in all_releases().values() if release.server == version), None)


def find_release(name: str, *, abi: str | None = None, where: str = "") -> Release:
    """The release called ``name``.

    A release that is newer than all that envpack knows gets the facts of the newest; its `Release.known` is false then,
    and `Release.warning` says so in words.

    Args:
        name: year and month, for example ``"24.10"``.
        abi: name of the wire that a stub for it must speak, instead of the one that envpack takes it to speak.
        where: the file that names the release, for the error.

    Raises:
        UsageError: there is no such release, or it is too old (kind ``unknown-release``); there is no such wire (kind
            ``unknown-abi``).
    """
    release = all_releases().get(name) or _later_than_known(name)
    if release is None:
        raise UsageError(f"unknown Triton release {name!r}", kind="unknown-release", where=where, hint=_advice(name))
    if abi is None:
        return release
    if abi not in all_abis():
        raise UsageError(f"unknown stub ABI {abi!r}", kind="unknown-abi", hint=_abi_advice(abi))
    return dataclasses.replace(release, stub_abi=abi)


def _later_than_known(name: str) -> Release | None:
    last = newest()
    if not re.fullmatch(_YEAR_AND_MONTH, name) or name < last.name:
        return None
    return dataclasses.replace(last, name=name, server="", wheel="", image=last.image.replace(last.name, name))


def _advice(name: str) -> str:
    """What to do about a name that is no release: as near to what was meant as can be told."""
    oldest, last = next(iter(all_releases())), newest().name
    if re.fullmatch(_YEAR_AND_MONTH, name):
        return f"the oldest release that envpack knows is {oldest}: take a server of that release or of a later one"
    meant = _meant(name)
    if meant:
        return f"write {' or '.join(meant)}; in envpack.toml a release needs quotes"
    return f"a release is a year and a month, {oldest} to {last} or later; `envpack releases` lists them"


def _meant(name: str) -> list[str]:
    """Releases that somebody who wrote ``name`` may have meant: 24.1, v24.10, 24.10-py3, or a server's version."""
    year, _, month = name.partition(".")
    by_server = release_of_server(name.removeprefix("v"))
    guesses = [f"{name}0", f"{year}.0{month}", *re.findall(_YEAR_AND_MONTH, name), by_server.name if by_server else ""]
    return [guess for guess in dict.fromkeys(guesses) if guess in all_releases()]


def _abi_advice(abi: str) -> str:
    release = all_releases().get(abi)
    if release:
        return f"Triton {release.name} speaks that of {release.stub_abi}"
    return f"an ABI is named after the first release that speaks it: {', '.join(all_abis())}"
