"""Recipes: all that decides the content of an environment and its stub, on whatever machine they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.conda import read_conda_settings
from envpack.lock import LOCAL_CHANNEL, Lock, LockOptions, lock_key, parse_lock
from envpack.requirements import Requirements, Target
from envpack.settings import PythonPreference, Release, StubPolicy, ToolchainName, find_release
from envpack.support.folders import cache_root

if TYPE_CHECKING:
    from envpack.verification import Verdict


@dataclass(frozen=True, kw_only=True)
class _Made:
    """What decides the stub and the form of the files.

    Attributes:
        triton: name of the Triton release.
        abi: the release whose stub ABI it uses, ``""`` for the known one.
        strip: remove debug information from libraries and programs.
        stub: ``"auto"`` makes one if the release's own stub has another Python, or cannot serve the model's NumPy.
        toolchain: compiler for the stub.
    """

    triton: str
    abi: str = ""
    strip: bool = False
    stub: StubPolicy = "auto"
    toolchain: ToolchainName = "auto"

    @property
    def release(self) -> Release:
        """The release, with all that is known of it."""
        return find_release(self.triton, abi=self.abi or None)


@dataclass(frozen=True, kw_only=True)
class Recipe(_Made):
    """An environment and its stub, made from requirements. It names no place where they go.

    Attributes:
        name: folder of the model that it is for, for messages.
        requirements: what the model requires.
        target: what the packages are for.
        channels: conda channels in order of preference.
        sources: pip packages that may be built from source.
        python_preference: where interpreters come from.
        lock: text of the model's lockfile, ``""`` if it has none.
        lock_file: where that is, or would be, on the machine of the caller.
        other_pythons: other minor versions that the requirements allow, if envpack chose the newest.
    """

    name: str
    requirements: Requirements
    target: Target
    channels: tuple[str, ...]
    sources: tuple[str, ...] = ()
    python_preference: PythonPreference = "system"
    lock: str = ""
    lock_file: Path = Path("envpack.lock")
    other_pythons: tuple[str, ...] = ()

    def options(self, *, previous: Lock | None = None, update: tuple[str, ...] = ()) -> LockOptions:
        """How this machine resolves it: with its cache, and with the conda settings of its user."""
        return LockOptions(
            channels=self.channels,
            settings=read_conda_settings(),
            cache=cache_root().absolute(),
            previous=previous,
            update=update,
            sources=self.sources,
            python_preference=self.python_preference,
        )

    @property
    def locked(self) -> Lock | None:
        """The lock of the model, None if it has none."""
        return parse_lock(self.lock, self.lock_file) if self.lock else None

    @property
    def lock_key(self) -> str:
        """Name of what it resolves to, the same on all machines."""
        return lock_key(self.requirements, self.target, self.channels, self.sources)

    @property
    def made_key(self) -> str:
        """Name of the environment if the model has a lock, else of what is resolved first."""
        lock = self.locked
        return lock.environment_key(strip=self.strip) if lock else self.lock_key

    @property
    def resolves_interpreter(self) -> bool:
        """Whether an interpreter of the machine that makes it becomes a package."""
        return not self.lock and self.has_local_channel

    @property
    def has_local_channel(self) -> bool:
        """Whether interpreters of the machine that resolves it are packages."""
        return LOCAL_CHANNEL in self.channels

    @property
    def files_here(self) -> str:
        """Why only this machine can make it, ``""`` if others can: it names files of this machine."""
        asked = self.requirements
        lines = (*asked.pip, *asked.constraints, *asked.pip_options)
        channels = (channel for channel in self.channels if channel != LOCAL_CHANNEL)
        urls = [*(package.url for package in asked.locked_conda), *(package.url for package in asked.locked_pip)]
        if asked.projects:
            return f"it builds {asked.projects[0]}"
        if any("file:" in line or "--find-links" in line for line in lines) or any(
            url.startswith("file:") for url in urls
        ):
            return "its requirements name files of this machine"
        if any(channel.startswith((".", "/", "~", "file:")) or Path(channel).is_dir() for channel in channels):
            return "a channel is a folder of this machine"
        return ""


@dataclass(frozen=True, kw_only=True)
class TakenOver(_Made):
    """An environment that exists in a folder of this machine, and its stub.

    Attributes:
        prefix: the folder.
        python: the minor version that it must have, ``""`` for any.
        platform: ``"linux-64"`` or ``"linux-aarch64"``, ``""`` for this machine's.
    """

    prefix: Path
    python: str
    platform: str


@dataclass(frozen=True, kw_only=True)
class Made:
    """What was made of a recipe, or verified.

    Attributes:
        fresh: whether it was made now; otherwise it was in the cache or in the store.
        digests: environments and stubs, by what they are: the environment's content, the stub's SHA-256.
        lock: text of the lock, if that was made.
        verdict: the verdict of a verification.
    """

    fresh: bool = False
    digests: dict[str, str] = field(default_factory=dict)
    lock: str = ""
    verdict: Verdict | None = None
