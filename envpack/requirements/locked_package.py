"""A conda package of a lock, by its URL and what else the lock says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from envpack.requirements.model import CondaPackage
from envpack.requirements.places import file_name, package_url
from envpack.requirements.problem import Location, shown
from envpack.requirements.target import Target
from envpack.requirements.wheel_file import is_sha256
from envpack.requirements.yaml_file import YamlTable

_SUFFIXES = (".conda", ".tar.bz2")
_FILE = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)-(?P<version>[^-/\s]+)-(?P<build>[^-/\s]+)")
_HINT = "make the lock again with the tool that wrote it"


def is_conda_archive(location: str) -> bool:
    """Whether a URL or path ends as a conda package does."""
    return location.partition("#")[0].endswith(_SUFFIXES)


def locked_conda(
    location: str,
    spot: Location,
    *,
    md5: str = "",
    sha256: str = "",
    said: YamlTable | None = None,
    depends: Iterable[str] | None = None,
) -> CondaPackage:
    """A conda package of a lock.

    Args:
        location: its URL, or its path, which counts from the lock.
        spot: the place in the lock.
        md5: as the lock says it, may be empty.
        sha256: as the lock says it, may be empty.
        said: the lock's entry, for what the file name does not say.
        depends: its dependencies, if they are written in another way than as a list ``depends`` of the entry.

    Raises:
        InputError: it is no conda package, or has a wrong hash or a password.

    """
    url = package_url(location, spot)
    said = said or YamlTable(spot)
    name, version, build = _parts(file_name(url), spot)
    subdir = said.text("subdir", "") or _subdir(url)
    if not subdir:
        raise spot.error(f"the folder of {name} does not say its platform, such as linux-64", hint=_HINT)
    md5, sha256 = md5.lower(), sha256.lower()
    if sha256 and not is_sha256(sha256):
        raise spot.error(f"the sha256 of {name} is not 64 hexadecimal digits", hint=_HINT)
    if md5 and not re.fullmatch(r"[0-9a-f]{32}", md5):
        raise spot.error(f"the md5 of {name} is not 32 hexadecimal digits", hint=_HINT)
    return CondaPackage(
        name=said.text("name", "") or name,
        version=said.text("version", "") or version,
        build=said.text("build", "") or build,
        subdir=subdir,
        url=url,
        sha256=sha256,
        md5=md5,
        size=said.number("size"),
        license=said.text("license", ""),
        depends=tuple(depends) if depends is not None else tuple(text for text, _ in said.texts("depends")),
        constrains=tuple(text for text, _ in said.texts("constrains")),
    )


def _parts(file: str, spot: Location) -> tuple[str, str, str]:
    suffix = next((one for one in _SUFFIXES if file.endswith(one)), "")
    match = _FILE.fullmatch(file.removesuffix(suffix)) if suffix else None
    if not match:
        raise spot.error(
            f"{shown(file)} is not a conda package", hint="it is like NAME-VERSION-BUILD.conda; envpack takes no others"
        )
    return match["name"].lower(), match["version"], match["build"]


def _subdir(url: str) -> str:
    folder = urlsplit(url).path.split("/")[-2]
    return folder if re.fullmatch(r"noarch|[a-z]+-[a-z0-9]+", folder) else ""


def check_platform(package: CondaPackage, target: Target, spot: Location) -> None:
    """Refuse a package that is for another system.

    Raises:
        InputError: it is.

    """
    if package.subdir not in (target.platform, "noarch"):
        raise spot.error(
            f"{package.name} is for {shown(package.subdir)}, not for {target.platform}",
            hint=f"give the list for {target.platform}, or build for the other platform",
        )


def python_minor(packages: Iterable[CondaPackage]) -> str:
    """The minor version of the Python among locked packages, ``""`` if there is none."""
    version = next((one.version for one in packages if one.name == "python"), "")
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else ""
