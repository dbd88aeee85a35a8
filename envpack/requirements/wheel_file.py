"""Wheels by their file names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from envpack.requirements.model import PipPackage
from envpack.requirements.places import file_name, package_url, path_of
from envpack.requirements.problem import Location, shown
from envpack.requirements.target import Target, wheel_tags
from envpack.support.errors import InputError

_LINUX = ("any", "linux_", "manylinux")  # not musllinux: Triton's images have glibc


@dataclass(frozen=True)
class WheelName:
    """What the name of a wheel says: its package, normalised, its version and the systems that it is for."""

    name: str
    version: str
    tags: frozenset[Tag]

    @property
    def can_be_for_linux(self) -> bool:
        """Whether any Linux with glibc takes it."""
        return any(tag.platform.startswith(_LINUX) for tag in self.tags)

    def fits(self, target: Target) -> bool:
        """Whether a target takes it; of an unknown Python, whether its processor does."""
        if target.minor:
            return not self.tags.isdisjoint(wheel_tags(target))
        return any(
            tag.platform == "any" or (tag.platform.startswith(_LINUX) and tag.platform.endswith(target.machine))
            for tag in self.tags
        )


def parse_wheel_name(name: str, spot: Location) -> WheelName:
    """Take the name of a wheel's file apart.

    Raises:
        InputError: no wheel is called so.

    """
    try:
        package, version, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        raise spot.error(
            f"{shown(name)} is not the name of a wheel", hint="it is like NAME-1.0-py3-none-any.whl; keep it unchanged"
        ) from error
    return WheelName(package, str(version), tags)


def locked_wheel(location: str, sha256: str, spot: Location, target: Target, *, size: int = 0) -> PipPackage:
    """A wheel of a lock.

    Args:
        location: its URL, or its path, which counts from the lock.
        sha256: as the lock says it; ``""`` is enough for a local file.
        spot: the place in the lock.
        target: what it must fit.
        size: as the lock says it.

    Raises:
        InputError: it is no wheel, is for something else, has no hash, or is a local file that is missing.

    """
    url = package_url(location, spot)
    if not file_name(url).endswith(".whl"):
        raise spot.error(
            f"{shown(file_name(url))} is not a wheel, and envpack installs wheels only",
            hint="build a wheel of it and lock that, or take the package from an index that has a wheel",
        )
    wheel = parse_wheel_name(file_name(url), spot)
    if not wheel.fits(target):
        raise wrong_platform(wheel.name, spot, target)
    local = path_of(url, spot.path.parent)
    if local is not None:
        _check_is_there(local, spot)
    sha256 = sha256.lower() or (_sha256(local, spot) if local else "")
    if not is_sha256(sha256):
        raise spot.error(f"{wheel.name} has no sha256", hint="make the lock again with a tool that writes hashes")
    return PipPackage(wheel.name, wheel.version, url, sha256, size)


def wrong_platform(name: str, spot: Location, target: Target) -> InputError:
    """The error for a package whose wheels are all for something else."""
    python = f"Python {target.minor}, " if target.minor else ""
    return spot.error(
        f"wrong platform wheel: no wheel of {name} is for {python}{target.platform} with glibc {target.glibc}",
        hint=f"make the lock again for {target.platform}, or choose the Python and the release that it was made for",
    )


def is_sha256(text: str) -> bool:
    """Whether a text is 64 hexadecimal digits."""
    return len(text) == 64 and all(digit in "0123456789abcdef" for digit in text)


def _check_is_there(wheel: Path, spot: Location) -> None:
    if not wheel.is_file():
        raise spot.error(f"there is no file {shown(str(wheel))}", hint="put the wheel there, or make the lock again")


def _sha256(wheel: Path, spot: Location) -> str:
    try:
        with wheel.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise spot.error(f"{wheel.name} cannot be read: {error.strerror}", hint="make it readable") from error
