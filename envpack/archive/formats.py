"""What each form of an environment costs: bytes to ship, bytes that a server unpacks, seconds that this takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envpack.environment import Environment

# Fitted to what benchmarks/unpack.py measures: libarchive 3.6, which servers have too, unpacks four archives of 854 to
# 11,070 files and 91 to 351 MB to ext4, on two cores that others use; the least of three. Each is met within 13 %, and
# the least of eight, five of them on a busier machine, within a third. In memory (/tmp as tmpfs) it is less.
_SECONDS_PER_FILE = 4.3e-5
_SECONDS_PER_BYTE = 2.8e-9
_SECONDS_PER_BYTE_UNZIPPED = 2.7e-9
_RATIO = 0.36  # of compressed bytes to others, until the archive is there
_HEADER = 768  # bytes of a tar file for each file: a header, and what fills up its last block


@dataclass(frozen=True)
class Format:
    """What one form costs.

    Attributes:
        form: ``"dir"``, ``"tar.gz"`` or ``"tar"``.
        size: bytes to ship; an estimate for archives that were not made.
        unpacked: bytes that a server needs in ``/tmp`` for it.
        unpack_seconds: how much longer the first load takes than that of a folder; an estimate.

    """

    form: str
    size: int
    unpacked: int
    unpack_seconds: float


@dataclass(frozen=True)
class PackageSize:
    """How much a package brings.

    Attributes:
        name: of the package.
        version: of the package.
        size: bytes of its files that are placed.
        left_out: bytes of its files that are not.

    """

    name: str
    version: str
    size: int
    left_out: int


def format_costs(told: dict[str, Any]) -> tuple[Format, ...]:
    """What each form of a placed environment costs, by what it says of itself (`read_metadata`)."""
    unpacked = told.get("unpacked", {})
    files, size = int(unpacked.get("files", 0)), int(unpacked.get("size", 0))
    archive = int(told.get("size", 0)) if "form" in told else 0
    plain = size + files * _HEADER
    unpacking = files * _SECONDS_PER_FILE + size * _SECONDS_PER_BYTE
    return (
        Format("dir", size, 0, 0.0),
        Format(
            "tar.gz",
            archive if told.get("form") == "tar.gz" else int(plain * _RATIO),
            size,
            round(unpacking + size * _SECONDS_PER_BYTE_UNZIPPED, 1),
        ),
        Format("tar", archive if told.get("form") == "tar" else plain, size, round(unpacking, 1)),
    )


def package_sizes(environment: Environment, told: dict[str, Any]) -> tuple[PackageSize, ...]:
    """How much each package of a placed environment brings, the largest first."""
    placed = {package["name"]: int(package["size"]) for package in told.get("packages", ())}
    sizes = (
        PackageSize(
            package.name, package.version, placed.get(package.name, 0), package.size - placed.get(package.name, 0)
        )
        for package in environment.packages
    )
    return tuple(sorted(sizes, key=lambda size: (-size.size, size.name)))
