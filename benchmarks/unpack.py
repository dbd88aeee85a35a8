"""Measures how long libarchive takes to unpack archives, for the estimates of `envpack.archive.formats`.

    python benchmarks/unpack.py FOLDER [--rounds 3]

Packs the environment of benchmarks/pack.py as tar and tar.gz with four selections of files: the default, without
libraries, without modules, and all files. Unpacks each archive into FOLDER, on the file system to measure. Unpacked
files are removed only at the end, because ext4 creates files more slowly for a minute after others are removed.
Prints the minimum seconds of each archive, and the least-squares fit in seconds per file, per byte, and per byte to
decompress.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import tempfile
import time
from pathlib import Path

import numpy
from pack import REQUIREMENTS

from envpack.archive import Selection, pack_archive
from envpack.archive.manifest import read_metadata
from envpack.environment import build_environment
from envpack.requirements import Requirements

SHAPES = {
    "default": Selection(),
    "no libraries": Selection(exclude=("*.so*",)),
    "no modules": Selection(exclude=("*.py", "*.pyc", "tzdata/", "pytz/", "*.h")),
    "all files": Selection(include=("**",)),
}
_END, _WORST = 1, -20  # status codes of libarchive; the second is a warning
_TIMES = 4  # option for writing: keep the times in the archive
_BLOCK = 16384  # bytes read at once


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive with the usual calls of libarchive."""
    library = ctypes.CDLL("libarchive.so.13")
    for name in ("archive_read_new", "archive_write_disk_new"):
        getattr(library, name).restype = ctypes.c_void_p
    reader, writer = (ctypes.c_void_p(getattr(library, f"archive_{name}_new")()) for name in ("read", "write_disk"))
    library.archive_read_support_filter_all(reader)
    library.archive_read_support_format_all(reader)
    library.archive_write_disk_set_options(writer, _TIMES)
    if library.archive_read_open_filename(reader, os.fsencode(archive), ctypes.c_size_t(_BLOCK)):
        raise SystemExit(f"{archive} cannot be read")
    folder.mkdir()
    os.chdir(folder)  # names in the archive are relative
    entry = ctypes.c_void_p()
    while library.archive_read_next_header(reader, ctypes.byref(entry)) != _END:
        if library.archive_read_extract2(reader, entry, writer) < _WORST:
            raise SystemExit(f"{archive} cannot be unpacked")
    library.archive_write_free(writer)
    library.archive_read_free(reader)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    environment = build_environment(Requirements(pip=REQUIREMENTS), python="3.10")
    with (
        tempfile.TemporaryDirectory(dir=environment.prefix.parents[1]) as packed,
        tempfile.TemporaryDirectory(dir=options.folder.resolve()) as unpacked,
    ):
        archives = {}
        for name, selection in SHAPES.items():
            for form in ("tar", "tar.gz"):
                archives[name, form] = Path(packed) / f"{name}.{form}"
                pack_archive(environment, archives[name, form], form=form, selection=selection)
        seconds: dict[tuple[str, str], list[float]] = {key: [] for key in archives}
        for number in range(options.rounds):
            for key, archive in archives.items():
                os.sync()
                started = time.perf_counter()
                unpack(archive, Path(unpacked) / f"{number}-{archive.name}")
                seconds[key].append(time.perf_counter() - started)
        report(archives, {key: min(found) for key, found in seconds.items()})
        os.chdir("/")


def report(archives: dict[tuple[str, str], Path], least: dict[tuple[str, str], float]) -> None:
    rows = []
    for (name, form), archive in archives.items():
        unpacked = read_metadata(archive)["unpacked"]
        zipped = unpacked["size"] if form == "tar.gz" else 0
        rows.append((unpacked["files"], unpacked["size"], zipped))
        print(
            f"{name:14} {form:7} {unpacked['files']:6} files {unpacked['size'] / 1e6:6.1f} MB"
            f" {least[name, form]:6.2f} s"
        )
    matrix, wall = numpy.array(rows, dtype=float), numpy.array(list(least.values()))
    weights = 1 / wall  # so that small archives count as much as large ones
    (of_file, of_byte, of_zipped), *_ = numpy.linalg.lstsq(matrix * weights[:, None], wall * weights, rcond=None)
    error = numpy.abs(matrix @ (of_file, of_byte, of_zipped) / wall - 1).max()
    print(f"seconds: {of_file:.1e} per file, {of_byte:.1e} per byte, {of_zipped:.1e} per byte to decompress")
    print(f"maximum error: {error:.0%}")


if __name__ == "__main__":
    main()
