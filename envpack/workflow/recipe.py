"""Recipes: all that decides the content of an environment and its stub, on whatever machine they are made.

A Kubernetes Job gets one as JSON.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import envpack
from envpack.conda.settings import read_conda_settings
from envpack.lock.lockfile import Lock, lock_key
from envpack.lock.resolve import LOCAL_CHANNEL, LockOptions
from envpack.requirements.model import Requirements
from envpack.requirements.target import Target
from envpack.settings.releases import Release, release_for_stub
from envpack.settings.table import PythonPreference, StubPolicy, ToolchainName
from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError
from envpack.support.folders import cache_root
from envpack.support.placed_files import LOCK_NAME
from envpack.support.redaction import redact
from envpack.support.text import printable_line

if TYPE_CHECKING:
    from envpack.verification.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class _Made:
    """What decides the stub and the form of the files."""

    triton: str
    abi: str = ""  # the release whose stub ABI it uses, "" for the known one
    strip: bool = False
    stub: StubPolicy = "auto"
    toolchain: ToolchainName = "auto"

    @property
    def release(self) -> Release:
        return release_for_stub(self.triton, abi=self.abi)


@dataclass(frozen=True, kw_only=True)
class Recipe(_Made):
    """An environment and its stub, made from requirements. It names no place where they go."""

    name: str  # folder of the model that it is for, for messages
    requirements: Requirements
    target: Target  # what the packages are for
    channels: tuple[str, ...]  # conda channels in order of preference
    sources: tuple[str, ...] = ()  # pip packages that may be built from source
    python_preference: PythonPreference = "system"  # where interpreters come from
    lock: str = ""  # text of the model's lockfile, "" if it has none
    lock_file: Path = Path(LOCK_NAME)  # where that is, or would be, on the machine of the caller

    def options(self, *, previous: Lock | None = None, update: tuple[str, ...] = ()) -> LockOptions:
        """How this machine resolves it: with its cache, and with the conda settings of its user."""
        return LockOptions(
            channels=self.channels,
            settings=read_conda_settings(),
            cache=cache_root(),
            previous=previous,
            update=update,
            sources=self.sources,
            python_preference=self.python_preference,
            allowed=self.requirements.pythons,
        )

    @property
    def locked(self) -> Lock | None:
        return Lock.parse(self.lock, self.lock_file) if self.lock else None

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
        lines = (*asked.pip, *asked.constraints, *asked.pip_options, *dict(asked.indexes).values())
        channels = (channel for channel in self.channels if channel != LOCAL_CHANNEL)
        urls = [*(package.url for package in asked.locked_conda), *(package.url for package in asked.locked_pip)]
        if asked.projects:
            return f"it builds {asked.projects[0]}"
        if any("file:" in line or "--find-links" in line for line in lines) or any(
            url.startswith("file:") for url in urls
        ):
            return "its requirements name files of this machine"
        if any(channel.startswith((".", "/", "~", "file:")) for channel in channels):
            return "a channel is a folder of this machine"
        return ""


@dataclass(frozen=True, kw_only=True)
class TakenOver(_Made):
    """An environment that exists in a folder of this machine, and its stub."""

    prefix: Path
    python: str  # that it must have, "" for any
    platform: str  # "" for that of this machine


@dataclass(frozen=True, kw_only=True)
class Made:
    """What was made of a recipe, or verified."""

    fresh: bool = False  # whether it was made now; otherwise it was in the cache or in the store
    # Environments and stubs, by what they are: the environment's content, the stub's SHA-256.
    digests: dict[str, str] = field(default_factory=dict)
    lock: str = ""  # text of the lock, if that was made
    verdict: Verdict | None = None


_MOST = 16 << 20  # bytes


def recipe_text(recipe: Recipe) -> str:
    reason = recipe.files_here
    asked = dataclasses.replace(recipe.requirements, source=None, files=(), places={}, warnings=())
    portable = dataclasses.replace(recipe, requirements=asked, lock_file=Path(recipe.name) / recipe.lock_file.name)
    document = {"envpack": envpack.__version__, "recipe": _converter().unstructure(portable)}
    text = json.dumps(document, indent=1, sort_keys=True)
    if redact(text) != text:
        reason = "its requirements contain an address with a password or a token"
    if reason:
        what = f"no other machine can build {recipe.name}: {reason}"
        fix = "build it on this machine with --store URL --set push=true"
        raise InputError("not-portable", what, fix, str(recipe.lock_file.parent))
    return text


def read_recipe(file: Path) -> Recipe:
    from cattrs import BaseValidationError

    try:
        document = json.loads(read_text(file, most=_MOST))
        version = str(document["envpack"])
        if version != envpack.__version__:
            reason = f"the recipe is of envpack {printable_line(version)}, and this is {envpack.__version__}"
            raise _bad(file, reason, "use the same version on both sides")
        recipe: Recipe = _converter().structure(document["recipe"], Recipe)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, BaseValidationError) as error:
        raise _bad(file, "this is no recipe of envpack", "take one that envpack kubernetes build printed") from error
    return recipe


def _bad(file: Path, message: str, hint: str) -> InputError:
    return InputError("bad-recipe", message, hint, str(file))


def _converter() -> Any:
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True, omit_if_default=True)
    converter.register_unstructure_hook(Path, str)
    converter.register_structure_hook(Path, lambda text, _: Path(text))
    return converter
