"""What an environment is built for: the system and the Python version that packages must fit."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envpack.support.platforms import MACHINES, abi_flags, platform_name

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.tags import Tag

_LEGACY_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
NEWEST_PATCH = 99
_MINORS = range(40)
_ALL_MINORS = ("2.6", "2.7", *(f"3.{minor}" for minor in _MINORS))
_PATCHES = (NEWEST_PATCH, *range(29, -1, -1))
_LONGEST_RANGE, _MOST_ALTERNATIVES = 1000, 50  # a hundred versions are tried with each


@dataclass(frozen=True)
class Target:
    """A system and a Python version."""

    platform: str = "linux-64"  # "linux-64" or "linux-aarch64"; "linux-x86_64" becomes "linux-64"
    python: str = ""  # Python version, minor ("3.10") or full, or "" if unknown
    glibc: str = "2.35"  # version of the C library, for example "2.35"
    cuda: str = ""  # version of CUDA in the image, "" for none

    def __post_init__(self) -> None:
        object.__setattr__(self, "platform", platform_name(self.platform))
        if self.platform not in MACHINES:
            raise ValueError(f"unknown platform {self.platform!r}, known: {', '.join(MACHINES)}")
        if not re.fullmatch(r"([0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,9})?)?", self.python):
            raise ValueError(f"{self.python!r} is not a Python version")
        if not re.fullmatch(r"2\.[0-9]{1,3}", self.glibc):
            raise ValueError(f"{self.glibc!r} is not a version of the C library")

    @property
    def machine(self) -> str:
        """The processor as Python names it, for example ``"x86_64"``."""
        return MACHINES[self.platform]

    @property
    def minor(self) -> str:
        """The Python minor version, ``""`` if unknown."""
        return ".".join(self.python.split(".")[:2])


@functools.lru_cache
def wheel_tags(target: Target) -> tuple[Tag, ...]:
    """Tags of the wheels that a target accepts, best first; its Python must be known."""
    from packaging.tags import compatible_tags, cpython_tags

    major, minor = (int(part) for part in target.minor.split("."))
    version, platforms = (major, minor), list(_platforms(target))
    abi = f"cp{major}{minor}{abi_flags(target.minor)}"
    return (
        *cpython_tags(version, abis=[abi], platforms=platforms),
        *compatible_tags(version, interpreter=f"cp{major}{minor}", platforms=platforms),
    )


def _platforms(target: Target) -> Iterator[str]:
    oldest = 5 if target.machine == "x86_64" else 17
    for minor in range(int(target.glibc.split(".")[1]), oldest - 1, -1):
        yield f"manylinux_2_{minor}_{target.machine}"
        if minor in _LEGACY_NAMES:
            yield f"{_LEGACY_NAMES[minor]}_{target.machine}"
    yield f"linux_{target.machine}"


def marker_environment(target: Target) -> dict[str, str]:
    """Values of environment markers (PEP 508); a minor version without a patch stands for the newest patch."""
    full = target.python if target.python.count(".") == 2 else f"{target.minor}.{NEWEST_PATCH}"
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": target.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": target.minor,
        "sys_platform": "linux",
    }


def allows_minor(python_range: str, minor: str) -> bool:
    """Whether some patch of a Python minor version lies in a range."""
    return bool(newest_in(python_range, minor))


def newest_in(python_range: str, minor: str) -> str:
    versions = (f"{minor}.{patch}" for patch in _PATCHES)
    return next((it for it in versions if any(one.contains(it) for one in _alternatives(python_range))), "")


@functools.lru_cache
def _alternatives(python_range: str) -> tuple[SpecifierSet, ...]:
    from packaging.specifiers import SpecifierSet

    found = python_range.split("|")
    if len(python_range) > _LONGEST_RANGE or len(found) > _MOST_ALTERNATIVES:
        raise ValueError(f"more than {_MOST_ALTERNATIVES} alternatives, or {_LONGEST_RANGE} characters")
    return tuple(map(SpecifierSet, found))


def common_range(ranges: Collection[str]) -> str:
    different = [found for found in dict.fromkeys(ranges) if found]
    sets = [_alternatives(found) for found in different]

    def allows(version: str) -> bool:
        return all(any(specifiers.contains(version) for specifiers in alternatives) for alternatives in sets)

    minors = [minor for minor in _ALL_MINORS if any(allows(f"{minor}.{patch}") for patch in _PATCHES)]
    if not minors:
        raise ValueError("no version of Python is in all ranges")
    if len(different) < 2:
        return "".join(different)
    if any("|" in found for found in different):
        return "|".join(f"=={minor}.*" for minor in minors)
    return ",".join(different)


@functools.lru_cache
def single_minor(python_range: str) -> str:
    """The only Python 3 minor version that a range allows, ``""`` if it allows several or none."""
    minors = minors_in(python_range)
    return minors[0] if len(minors) == 1 else ""


def minors_in(python_range: str) -> tuple[str, ...]:
    return tuple(f"3.{minor}" for minor in _MINORS if allows_minor(python_range, f"3.{minor}"))


# Packages that no Linux has, in conda or on the package index.
_ONLY = {
    "Windows": re.compile(
        r"console_shortcut.*|icc_rt|m2-.*|m2w64-.*|menuinst|msys2-.*|pypiwin32|pyreadline|pywin32|pywinpty|ucrt|vc|vc14_runtime"
        r"|vcomp14|vs20.*_runtime|win_inet_pton|win-inet-pton|wincertstore|windows-curses|winpty"
    ),
    "macOS": re.compile(r"applaunchservices|appnope|pyobjc.*|python\.app|tensorflow-(?:macos|metal)"),
}
_WINDOWS_PREFIX = re.compile(r"[A-Za-z]:[\\/]")
_MACOS_PREFIX = re.compile(r"/(?:Users|Applications|opt/homebrew|usr/local/(?:Caskroom|anaconda|miniconda))")
_SELECTOR = re.compile(r"\s#\s*\[(?P<selector>[^\]#]+)\]\s*$")


def system_of_prefix(prefix: str) -> str:
    """The system that a ``prefix`` of an exported environment belongs to: ``"Windows"``, ``"macOS"``, or ``""``."""
    if _WINDOWS_PREFIX.match(prefix):
        return "Windows"
    return "macOS" if _MACOS_PREFIX.match(prefix) else ""


def only_system(name: str) -> str:
    """The system that is the only one with a package of this name: ``"Windows"``, ``"macOS"``, or ``""``."""
    return next((system for system, names in _ONLY.items() if names.fullmatch(name.lower())), "")


def selector_of(line: str) -> str:
    """The selector in a comment at the end of a line, as ``win`` in ``- pywin32  # [win]``; ``""`` without one."""
    match = _SELECTOR.search(line)
    return match["selector"].strip() if match else ""


def selects(selector: str, platform: str) -> bool:
    true = {"linux", "unix", *({"linux64", "linux-64", "x86_64", "x86"} if platform == "linux-64" else ())}
    true |= {"aarch64", "linux-aarch64"} if platform == "linux-aarch64" else set()
    false = {"win", "win32", "win64", "win-64", "osx", "osx64", "osx-64", "osx-arm64", "arm64", "linux32", "armv7l"}
    false |= {"ppc64le", "s390x", "linux64", "linux-64", "x86_64", "x86", "aarch64", "linux-aarch64"} - true

    def holds(term: str) -> bool:
        name = term.strip().removeprefix("not ").strip()
        if name not in true | false:
            raise ValueError(f"unknown system {name!r}")
        return (name in true) != term.strip().startswith("not ")

    return any(all(holds(term) for term in part.split(" and ")) for part in selector.split(" or "))
