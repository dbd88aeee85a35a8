"""What each format of an execution environment costs: bytes to ship, bytes that a server unpacks, seconds to unpack."""

from __future__ import annotations

from dataclasses import dataclass

from envpack.archive.manifest import PlacedMetadata

# Fitted to measurements: libarchive 3.6, which servers use too, unpacks four archives of 854 to
# 11,070 files and 91 to 351 MB to ext4, on two shared cores; the fastest of three runs. The fit is within 13 % of each,
# and within a third of the fastest of eight runs, five of them on a busier machine. With /tmp as tmpfs it takes less.
_SECONDS_PER_FILE = 4.3e-5
_SECONDS_PER_BYTE = 2.8e-9
_SECONDS_PER_BYTE_UNZIPPED = 2.7e-9
_RATIO = 0.36  # compressed to uncompressed bytes, for archives that do not exist yet
_HEADER = 768  # bytes per file of a tar file: the header, and on average half a block of padding


@dataclass(frozen=True)
class Format:
    """What one format costs.

    Attributes:
        form: ``"dir"``, ``"tar.gz"`` or ``"tar"``.
        size: bytes to ship; an estimate for archives that do not exist.
        unpacked: bytes that a server needs in ``/tmp`` for it.
        unpack_seconds: how much longer the first load takes than with a folder; an estimate.
    """

    form: str
    size: int
    unpacked: int
    unpack_seconds: float


def format_costs(metadata: PlacedMetadata) -> tuple[Format, ...]:
    """Bytes and seconds that each format of a placed environment costs."""
    unpacked = metadata.get("unpacked", {"files": 0, "size": 0})
    files, size = int(unpacked.get("files", 0)), int(unpacked.get("size", 0))
    archive = int(metadata.get("size", 0)) if "form" in metadata else 0
    plain = size + files * _HEADER
    unpacking = files * _SECONDS_PER_FILE + size * _SECONDS_PER_BYTE
    return (
        Format("dir", size, 0, 0.0),
        Format(
            "tar.gz",
            archive if metadata.get("form") == "tar.gz" else int(plain * _RATIO),
            size,
            round(unpacking + size * _SECONDS_PER_BYTE_UNZIPPED, 1),
        ),
        Format("tar", archive if metadata.get("form") == "tar" else plain, size, round(unpacking, 1)),
    )
