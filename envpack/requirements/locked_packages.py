"""Entries of a lock as packages: conda packages and wheels, described by their URL, hashes and metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from packaging.tags import Tag
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from envpack.requirements.location import CREDENTIALS_HINT, file_name, local_path, package_url
from envpack.requirements.model import CondaPackage, PipPackage, Requirements
from envpack.requirements.target import Target, wheel_tags
from envpack.support.bounded_reading import sha256_of
from envpack.support.errors import InputError
from envpack.support.redaction import has_secret
from envpack.support.tables import Location, Table, quote
from envpack.support.text import is_sha256

_CONDA_SUFFIXES = (".conda", ".tar.bz2")
_CONDA_FILE = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)-(?P<version>[^-/\s]+)-(?P<build>[^-/\s]+)")
_LINUX = ("any", "linux_", "manylinux")  # not musllinux: Triton's images have glibc
_HINT = "write the lock again with the tool that wrote it"


def is_conda_archive(url: str) -> bool:
    return url.partition("#")[0].endswith(_CONDA_SUFFIXES)


def locked_conda(
    url_or_path: str,
    location: Location,
    target: Target,
    *,
    md5: str = "",
    sha256: str = "",
    entry: Table | None = None,
    depends: Iterable[str] | None = None,
) -> CondaPackage:
    """A conda package of a lock, which must be for the target's platform."""
    url = package_url(url_or_path, location)
    entry = entry or Table(location)
    name, version, build = _parse_conda_name(file_name(url), location)
    folder = urlsplit(url).path.split("/")[-2]
    subdir = entry.text("subdir", "") or (folder if re.fullmatch(r"noarch|[a-z]+-[a-z0-9]+", folder) else "")
    if not subdir:
        raise location.error(f"the folder of {name} does not name its platform, such as linux-64", hint=_HINT)
    md5, sha256 = md5.lower(), sha256.lower()
    if sha256 and not is_sha256(sha256):
        raise location.error(f"the sha256 of {name} is not 64 hexadecimal digits", hint=_HINT)
    if md5 and not re.fullmatch(r"[0-9a-f]{32}", md5):
        raise location.error(f"the md5 of {name} is not 32 hexadecimal digits", hint=_HINT)
    if subdir not in (target.platform, "noarch"):
        what = f"{entry.text('name', '') or name} is for {quote(subdir)}, not for {target.platform}"
        raise location.error(what, hint=f"use the list for {target.platform}, or build for the other platform")
    return CondaPackage(
        name=entry.text("name", "") or name,
        version=entry.text("version", "") or version,
        build=entry.text("build", "") or build,
        subdir=subdir,
        url=url,
        sha256=sha256,
        md5=md5,
        size=entry.number("size"),
        license=entry.text("license", ""),
        depends=tuple(depends) if depends is not None else tuple(text for text, _ in entry.texts("depends")),
        constrains=tuple(text for text, _ in entry.texts("constrains")),
    )


def _parse_conda_name(file: str, location: Location) -> tuple[str, str, str]:
    suffix = next((suffix for suffix in _CONDA_SUFFIXES if file.endswith(suffix)), "")
    match = _CONDA_FILE.fullmatch(file.removesuffix(suffix)) if suffix else None
    if not match:
        raise location.error(
            f"{quote(file)} is not a conda package",
            hint="the file name of a conda package is NAME-VERSION-BUILD.conda or .tar.bz2",
        )
    return match["name"].lower(), match["version"], match["build"]


def locked_channels(tables: Iterable[Table]) -> tuple[str, ...]:
    """The channels of a lock, none with a password; conda-lock writes variables in place of some."""
    found = [(table.text("url"), table.location) for table in tables]
    for url, location in found:
        if has_secret(url) or re.search(r"\$\{?\w", url):
            raise location.error("the channel contains a password or a token", hint=CREDENTIALS_HINT)
    return tuple(url for url, _ in found)


def check_once(packages: Iterable[CondaPackage | PipPackage], places: Iterable[Location]) -> None:
    """Check that packages of one kind, read from these places, have different names."""
    seen: dict[str, CondaPackage | PipPackage] = {}
    for package, place in zip(packages, places, strict=True):
        other = seen.setdefault(package.name, package)
        if other is not package:
            raise place.error(
                f"{package.name} is locked twice: {other.version} and {package.version}",
                hint="leave only one of them in the lock, or write it again with the tool that wrote it",
            )


def checked_project(folder: Path | None, written: str, location: Location) -> Path:
    """The folder of a project beside the packages of a lock, which names it by a path."""
    if folder is None or not any((folder / file).is_file() for file in ("pyproject.toml", "setup.py")):
        what = f"there is no Python project in the folder {quote(written)}"
        raise location.error(what, hint="the path starts at the folder of the lock")
    return folder


def python_minor(packages: Iterable[CondaPackage]) -> str:
    version = next((package.version for package in packages if package.name == "python"), "")
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else ""


@dataclass(frozen=True)
class WheelName:
    """The parts of a wheel's file name: normalised package name, version, platform tags."""

    name: str
    version: str
    tags: frozenset[Tag]

    @property
    def can_be_for_linux(self) -> bool:
        """Whether some Linux with glibc accepts the wheel."""
        return any(tag.platform.startswith(_LINUX) for tag in self.tags)

    def fits(self, target: Target) -> bool:
        """Whether the target accepts the wheel; if its Python is unknown, only the processor is compared."""
        if target.minor:
            return not self.tags.isdisjoint(wheel_tags(target))
        return any(
            tag.platform == "any" or (tag.platform.startswith(_LINUX) and tag.platform.endswith(target.machine))
            for tag in self.tags
        )


def parse_wheel_name(name: str, location: Location) -> WheelName:
    try:
        package, version, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        raise location.error(
            f"{quote(name)} is not the name of a wheel",
            hint="a wheel is named like NAME-1.0-py3-none-any.whl; do not rename it",
        ) from error
    return WheelName(package, str(version), tags)


def locked_file(url_or_path: str, sha256: str, location: Location, target: Target, *, size: int = 0) -> PipPackage:
    """A wheel of a lock, or a source distribution, which is built if the user allows it."""
    url = package_url(url_or_path, location)
    name = file_name(url)
    if name.endswith(".whl"):
        wheel = parse_wheel_name(name, location)
        if not wheel.fits(target):
            raise wrong_platform(wheel.name, location, target)
        return _locked_file(wheel.name, wheel.version, url, sha256, location, size)
    try:
        package, version = parse_sdist_filename(name)
    except InvalidSdistFilename as error:
        raise location.error(
            f"{quote(name)} is neither a wheel nor a source distribution, NAME-1.0.tar.gz",
            hint="build a wheel from it and lock that, or use an index that has a wheel",
        ) from error
    return _locked_file(package, str(version), url, sha256, location, size)


def _locked_file(name: str, version: str, url: str, sha256: str, location: Location, size: int) -> PipPackage:
    path = local_path(url, location.path.parent)
    if path is not None and not path.is_file():
        raise location.error(f"there is no file {quote(str(path))}", hint="put it there, or write the lock again")
    sha256 = sha256.lower() or (_sha256(path, location) if path else "")
    if not is_sha256(sha256):
        raise location.error(f"{name} has no sha256", hint="write the lock again with a tool that records hashes")
    return PipPackage(name, version, url, sha256, size)


def wrong_platform(name: str, location: Location, target: Target) -> InputError:
    python = f"Python {target.minor}, " if target.minor else ""
    return location.error(
        f"wrong platform wheel: no wheel of {name} is for {python}{target.platform} with glibc {target.glibc}",
        hint=f"write the lock again for {target.platform}, or choose the Python and the release that it was made for",
    )


def _sha256(wheel: Path, location: Location) -> str:
    try:
        return sha256_of(wheel)
    except OSError as error:
        raise location.error(f"{wheel.name} cannot be read: {error.strerror}", hint="make it readable") from error


def check_locked(requirements: Requirements) -> None:
    """Refuse a lock of another tool whose conda packages cannot be verified, or that has no Python to run them."""
    conda, where = requirements.locked_conda, str(requirements.source or "")
    for package in conda:
        if not (package.sha256 or package.md5):
            what = f"{package.name} {package.version} has no hash, so its content cannot be verified"
            fix = "write the list with conda list --explicit --sha256, or --md5"
            raise InputError("bad-requirements", what, fix, where)
    if conda and all(package.name != "python" for package in conda):
        what = "the lock has no package python, so nothing could run its packages"
        fix = "add python to what the lock was made from, and make it again"
        raise InputError("bad-requirements", what, fix, where)
