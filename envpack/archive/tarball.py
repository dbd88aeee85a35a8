"""Packs an execution environment as an archive once, keeps it in the store, and links it to each model that uses it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, Self

from envpack.archive.manifest import (
    SCHEMA,
    SelectedFiles,
    announce,
    archive_metadata,
    archive_metadata_file,
    describes,
    selected_files,
    sha256_of,
)
from envpack.archive.selection import Selection
from envpack.environment import Environment, environment_in_use
from envpack.support.bounded_reading import read_json
from envpack.support.cache_locations import cache_folder
from envpack.support.entry_locks import ensured, mark_used
from envpack.support.errors import EnvironmentBuildError
from envpack.support.modes import FILE
from envpack.support.progress import NoProgress, Progress
from envpack.support.replacement import replaced_file, write_text
from envpack.support.temp_dirs import temp_dir
from envpack.support.text import counted
from envpack.support.transfer import LinkMode, Transfer, is_result_of

if TYPE_CHECKING:
    from envpack.archive.segments import Segment

TarFormat = Literal["tar.gz", "tar"]
PackerName = Literal["envpack", "conda-pack"]

_FLUSH = 16 << 20  # bytes


@dataclass(frozen=True)
class _ArchiveRequest:
    """An archive to make: the same fields produce the same archive."""

    environment: Environment
    form: TarFormat
    selection: Selection
    packer: PackerName

    @property
    def made_by(self) -> str:
        """The program and settings that decide the bytes, besides the files."""
        from envpack.archive.segments import compressor

        if self.packer == "conda-pack":
            import importlib.metadata

            return f"conda-pack {importlib.metadata.version('conda-pack')}"
        return compressor() if self.form == "tar.gz" else "tar"

    def path(self) -> Path:
        """Path of the archive in the store."""
        key_parts = [self.environment.key, self.environment.content, self.form, self.selection.digest, self.made_by]
        digest = hashlib.sha256(json.dumps(key_parts).encode()).hexdigest()[:32]
        return cache_folder("archives") / f"{digest}.{self.form}"

    def is_at(self, archive: Path) -> bool:
        """Whether a file is this archive, by its metadata file; its content is read only if the time stamp differs."""
        try:
            metadata = read_json(archive_metadata_file(archive))
            status = archive.stat()
            if metadata["schema"] != SCHEMA or not describes(metadata, self.environment, self.selection):
                return False
            if (metadata["form"], metadata["made_by"], metadata["size"]) != (self.form, self.made_by, status.st_size):
                return False
            return bool(metadata["mtime_ns"] == status.st_mtime_ns or metadata["sha256"] == sha256_of(archive))
        except (OSError, ValueError, KeyError, TypeError):
            return False


def pack_archive(
    environment: Environment,
    destination: Path,
    *,
    form: TarFormat = "tar.gz",
    selection: Selection | None = None,
    packer: PackerName = "envpack",
    link_mode: LinkMode = "auto",
    threads: int = 0,
    progress: Progress | None = None,
) -> bool:
    """Write an environment as an archive with ``bin/activate`` at its root, readable for all users.

    The same environment produces the same bytes, for any number of threads and whether or not its packages were packed
    before. The archive is read-only. A file beside it (`archive_metadata_file`) describes it.

    Returns:
        Whether anything was written; ``False`` if ``destination`` already is this archive.
    """
    everything = Selection(include=("**",))
    request = _ArchiveRequest(
        environment, form, everything if packer == "conda-pack" else selection or Selection(), packer
    )
    stored = request.path()

    def is_there() -> bool:
        return request.is_at(destination) and is_result_of(link_mode, destination, stored)

    if is_there():
        mark_used(stored)
        return False

    from envpack.archive.folder import locked_destination

    def pack() -> None:
        _pack(request, stored, threads, progress or NoProgress())

    with (
        environment_in_use(environment),
        ensured(stored, lambda: request.is_at(stored), pack),
        locked_destination(destination),
    ):
        if is_there():
            return False
        with replaced_file(destination, mode=FILE) as partial:
            partial.unlink()
            Transfer(link_mode, destination)(str(stored), str(partial))
            announce(destination, stored)
        write_text(archive_metadata_file(destination), archive_metadata_file(stored).read_text(encoding="utf-8"))
    return True


@contextlib.contextmanager
def stored_archive(
    environment: Environment,
    *,
    form: TarFormat = "tar.gz",
    selection: Selection | None = None,
    progress: Progress | None = None,
) -> Iterator[Path]:
    """The archive of an environment in the store; it is packed first if it is not there, and stays during the block."""
    request = _ArchiveRequest(environment, form, selection or Selection(), "envpack")
    stored = request.path()

    def pack() -> None:
        _pack(request, stored, 0, progress or NoProgress())

    with environment_in_use(environment), ensured(stored, lambda: request.is_at(stored), pack):
        yield stored


def is_archive_of_mode(
    mode: LinkMode, archive: Path, environment: Environment, form: TarFormat, selection: Selection
) -> bool:
    """Whether an archive that `pack_archive` made of an environment can have been placed in a mode."""
    return is_result_of(mode, archive, _ArchiveRequest(environment, form, selection, "envpack").path())


def _pack(request: _ArchiveRequest, stored: Path, threads: int, progress: Progress) -> None:
    with selected_files(request.environment, request.selection) as selected:
        _pack_selected(request, selected, stored, threads, progress)


def _pack_selected(
    request: _ArchiveRequest, selected: SelectedFiles, stored: Path, threads: int, progress: Progress
) -> None:
    progress.begin(f"pack {counted(len(selected.entries), 'file')} as {request.form}")
    from envpack.archive.segments import DamagedSegmentError, write_index

    while True:
        try:
            digest, segments = _write(request, selected, stored, threads, progress)
            break
        except DamagedSegmentError as error:  # its index is removed, so the next attempt does not use it
            progress.detail(str(error))
    status = stored.stat()
    measured = {
        "form": request.form,
        "made_by": request.made_by,
        "packer": request.packer,
        "sha256": digest,
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
    }
    write_text(archive_metadata_file(stored), archive_metadata(selected, **measured))
    if segments:
        write_index(stored, segments)
    progress.end(f"{status.st_size / 1e6:.1f} MB")


def _write(
    request: _ArchiveRequest, selected: SelectedFiles, stored: Path, threads: int, progress: Progress
) -> tuple[str, dict[str, Segment]]:
    """Write an archive into the store; returns its SHA-256 and the positions of its segments."""
    prefix = request.environment.prefix
    segments: dict[str, Segment] = {}
    with replaced_file(stored, mode=FILE) as partial:
        if request.packer == "conda-pack":
            pack_with_conda_pack(prefix, partial, request.form)
            return sha256_of(partial), segments
        with partial.open("wb", buffering=0) as raw, _Hashed(raw, progress) as out:
            if request.form == "tar":
                _write_plain(prefix, selected, out, threads)
            else:
                segments = _write_compressed(prefix, selected, out, stored.parent, threads)
        return out.digest.hexdigest(), segments


def _write_plain(prefix: Path, selected: SelectedFiles, out: _Hashed, threads: int) -> None:
    from envpack.archive.segments import by_package
    from envpack.archive.tar_members import END, Packer, portions

    out.write(_head(selected))
    divided = [list(portions(group)) for _, group in by_package(selected.entries)]
    with Packer(prefix, None, threads) as packer:
        for blocks in packer.packed(divided):
            for block in blocks:
                out.write(block)
    out.write(END)


def _write_compressed(
    prefix: Path, selected: SelectedFiles, out: _Hashed, store: Path, threads: int
) -> dict[str, Segment]:
    from envpack.archive.segments import compressed, write_segments
    from envpack.archive.tar_members import END

    out.write(compressed(_head(selected)))
    segments = write_segments(prefix, selected.entries, out, store, threads=threads)
    out.write(compressed(END))
    return segments


def _head(selected: SelectedFiles) -> bytes:
    """Manifest and inventory: they come first, so that a reader can verify the rest while it reads."""
    from envpack.archive.tar_members import header, padding

    pieces = []
    for entry in selected.own_entries():
        pieces += [header(entry), selected.descriptions[entry.path], padding(entry.size)]
    return b"".join(pieces)


class _Hashed:
    """A file that is written from start to end, and its SHA-256. Use it in a ``with`` block.

    It is flushed to the disk while more is compressed, so that the final flush does not take long.
    """

    def __init__(self, file: io.FileIO | BinaryIO, progress: Progress) -> None:
        self._progress = progress
        self._handle = file.fileno()
        self._hasher = ThreadPoolExecutor(1)
        self._flusher = ThreadPoolExecutor(1)
        self._flushing: Future[None] | None = None
        self._flushed = 0
        self.digest = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._hasher.shutdown(wait=True)
        self._flusher.shutdown(wait=True)
        if self._flushing and kind is None:
            self._flushing.result()  # the kernel reports a failure only once

    def write(self, content: bytes | memoryview) -> None:
        hashed = self._hasher.submit(self.digest.update, content)
        try:
            self.size += len(content)
            left = memoryview(content)
            while left:
                left = left[os.write(self._handle, left) :]
        finally:
            hashed.result()  # the caller may change the buffer afterwards
        self._progress.advance(self.size, 0, "bytes")
        if self.size - self._flushed >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        if self._flushing:
            if not self._flushing.done():
                return
            self._flushing.result()
        self._flushed = self.size
        self._flushing = self._flusher.submit(os.fdatasync, self._handle)


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def pack_with_conda_pack(prefix: Path, file: Path, form: str) -> None:
    """Write an archive of a conda prefix with conda-pack."""
    from conda_pack.core import CondaEnv, CondaPackException

    try:
        # It leaves its temporary file behind if it is interrupted.
        with temp_dir("conda-pack") as folder, _temporary_files_in(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # conda-pack warns about records without a package cache
            found = CondaEnv.from_prefix(str(prefix), on_missing_cache="ignore", ignore_missing_files=True)
            found.pack(output=str(file), format=form, force=True)
    except CondaPackException as error:
        raise EnvironmentBuildError(
            f"conda-pack rejects the environment: {error}",
            kind="conda-pack-failed",
            where=str(prefix),
            hint="leave out --packer, to pack with envpack's own packer",
        ) from error
