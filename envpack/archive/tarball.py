"""Packs an execution environment as an archive once, keeps it in the store, and links it to each model that uses it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

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
from envpack.settings import PackerName
from envpack.support.bounded_reading import read_json
from envpack.support.entry_locks import ensured, mark_used
from envpack.support.errors import EnvironmentBuildError
from envpack.support.folders import cache_folder, temp_dir
from envpack.support.links_and_modes import FILE, LinkMode, Transfer, is_result_of
from envpack.support.progress import NoProgress, Progress
from envpack.support.replacement import replaced_file, write_text
from envpack.support.text import counted

if TYPE_CHECKING:
    from envpack.archive.segments import Segment

TarFormat = Literal["tar.gz", "tar"]


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
    from envpack.archive.output import Output
    from envpack.archive.segments import write_tar

    prefix = request.environment.prefix
    with replaced_file(stored, mode=FILE) as partial:
        if request.packer == "conda-pack":
            pack_with_conda_pack(prefix, partial, request.form)
            return sha256_of(partial), {}
        store = stored.parent if request.form == "tar.gz" else None
        with partial.open("wb", buffering=0) as raw, Output(raw, progress, flushed=True) as out:
            segments = write_tar(out, selected.descriptions, prefix, selected.entries, store, threads=threads)
        return out.digest.hexdigest(), segments


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
            hint="leave out packer, to pack with envpack's own packer",
        ) from error
