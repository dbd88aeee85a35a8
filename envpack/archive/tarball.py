"""Packs an environment as an archive: for models, once, kept in the store; or whole, for stores of other machines."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.archive.folder import locked_destination
from envpack.archive.layer import Unpacker
from envpack.archive.manifest import (
    SCHEMA,
    SelectedFiles,
    announce,
    archive_metadata,
    archive_metadata_file,
    describes,
    selected_files,
)
from envpack.archive.reading import ArchiveReader, Member, opened_archive
from envpack.archive.segments import (
    DamagedSegmentError,
    Output,
    Segment,
    compressed,
    compressor,
    write_index,
    write_tar,
)
from envpack.archive.selection import Selection
from envpack.archive.tar_members import END, check_entries
from envpack.environment.inventory import INVENTORY, parse_inventory
from envpack.environment.store import Environment, environment_in_use
from envpack.settings.table import PackerName
from envpack.support.bounded_reading import parse_json, read_bytes, read_json, sha256_of
from envpack.support.entry_locks import ensured, mark_used
from envpack.support.errors import EnvironmentBuildError
from envpack.support.folders import cache_folder
from envpack.support.links_and_modes import FILE, PROGRAM, LinkMode, Transfer, is_result_of
from envpack.support.placed_files import MANIFEST
from envpack.support.progress import SILENT, Progress, WithinStep
from envpack.support.replacement import replaced_file, write_text
from envpack.support.temp_dirs import temp_dir
from envpack.support.text import counted

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
        if self.packer == "conda-pack":
            import importlib.metadata

            return f"conda-pack {importlib.metadata.version('conda-pack')} without {INVENTORY}"
        return compressor() if self.form == "tar.gz" else "tar"

    def path(self) -> Path:
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
    progress: Progress = SILENT,
) -> bool:
    """Write an environment as an archive, always with the same bytes; returns whether anything was written."""
    everything = Selection(include=("**",))
    request = _ArchiveRequest(
        environment, form, everything if packer == "conda-pack" else selection or Selection(), packer
    )

    def is_there() -> bool:
        return request.is_at(destination) and is_result_of(link_mode, destination, request.path())

    if is_there():
        mark_used(request.path())
        return False
    with _stored(request, WithinStep(progress)) as stored, locked_destination(destination):
        if is_there():
            return False
        with replaced_file(destination, mode=FILE) as partial:
            partial.unlink()
            Transfer(link_mode, destination)(str(stored), str(partial))
            announce(destination, stored)
        write_text(archive_metadata_file(destination), archive_metadata_file(stored).read_text(encoding="utf-8"))
    return True


def stored_archive(
    environment: Environment, *, selection: Selection | None = None, progress: Progress = SILENT
) -> contextlib.AbstractContextManager[Path]:
    """The archive of an environment in the store; it is packed first if it is not there, and stays during the block."""
    request = _ArchiveRequest(environment, "tar.gz", selection or Selection(), "envpack")
    return _stored(request, progress)


@contextlib.contextmanager
def _stored(request: _ArchiveRequest, progress: Progress) -> Iterator[Path]:
    stored = request.path()

    def pack() -> None:
        with selected_files(request.environment, request.selection) as selected:
            _pack(request, selected, stored, progress)

    with environment_in_use(request.environment), ensured(stored, lambda: request.is_at(stored), pack):
        yield stored


def is_archive_of_mode(
    mode: LinkMode, archive: Path, environment: Environment, form: TarFormat, selection: Selection
) -> bool:
    """Whether an archive that `pack_archive` made of an environment can have been placed in a mode."""
    return is_result_of(mode, archive, _ArchiveRequest(environment, form, selection, "envpack").path())


def _pack(request: _ArchiveRequest, selected: SelectedFiles, stored: Path, progress: Progress) -> None:
    progress.begin(f"pack {counted(len(selected.entries), 'file')} as {request.form}")
    while True:
        try:
            digest, segments = _write(request, selected, stored, progress)
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
    request: _ArchiveRequest, selected: SelectedFiles, stored: Path, progress: Progress
) -> tuple[str, dict[str, Segment]]:
    prefix = request.environment.prefix
    with replaced_file(stored, mode=FILE) as partial:
        if request.packer == "conda-pack":
            pack_with_conda_pack(prefix, partial, request.form)
            return sha256_of(partial), {}
        store = stored.parent if request.form == "tar.gz" else None
        with partial.open("wb", buffering=0) as raw, Output(raw, progress, flushed=True) as out:
            segments = write_tar(out, selected.descriptions, prefix, selected.entries, store)
        return out.digest.hexdigest(), segments


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def pack_with_conda_pack(prefix: Path, file: Path, form: str) -> None:
    from conda_pack.core import CondaEnv, CondaPackException

    try:
        # It leaves its temporary file behind if it is interrupted.
        with temp_dir("conda-pack") as folder, _temporary_files_in(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # conda-pack warns about records without a package cache
            found = CondaEnv.from_prefix(str(prefix), on_missing_cache="ignore", ignore_missing_files=True)
            found = found.exclude(INVENTORY)  # of which conda-pack changes and adds files
            found.pack(output=str(file), format=form, force=True)
    except CondaPackException as error:
        what = f"conda-pack rejects the environment: {error}"
        fix = "leave out packer, to pack with envpack's own packer"
        raise EnvironmentBuildError("conda-pack-failed", what, fix, str(prefix)) from error


_MOST_HEAD = 256 << 20  # bytes of a manifest or an inventory


def pack_whole(environment: Environment, file: Path, progress: Progress) -> tuple[int, ...]:
    """Write all files of an environment as an archive; returns the sizes of its pieces, packages among them."""
    with environment_in_use(environment):
        inventory = read_bytes(environment.prefix / INVENTORY, most=_MOST_HEAD)
        entries = parse_inventory(inventory)
        check_entries(entries)
        head = {MANIFEST: (environment.prefix / MANIFEST).read_bytes(), INVENTORY: inventory}
        while True:
            try:
                with file.open("wb", buffering=0) as raw, Output(raw, progress, hashed=False) as out:
                    segments = write_tar(out, head, environment.prefix, entries, cache_folder("archives"))
            except DamagedSegmentError as error:  # its index is removed, so the next attempt does not use it
                progress.detail(str(error))
                continue
            sizes, end = [segment.size for segment in segments.values()], len(compressed(END))
            return (out.size - sum(sizes) - end, *sizes, end)


def unpack_whole(archive: Path, folder: Path, content: str, limit: int) -> None:
    """Unpack what `pack_whole` wrote. Every file is compared with its SHA-256."""
    try:
        _unpack_all(archive, folder, content, limit)
    except _WriteError as error:  # which `opened_archive` would take for an error of the archive
        raise error.cause from None


class _WriteError(Exception):
    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _unpack_all(archive: Path, folder: Path, content: str, limit: int) -> None:
    with opened_archive(archive, limit) as reader:
        members = iter(reader)
        manifest = _head(members, reader, MANIFEST)
        inventory = _head(members, reader, INVENTORY)
        described = parse_json(manifest)
        announced = described.get("content") if isinstance(described, dict) else None
        if not hashlib.sha256(inventory).hexdigest() == content == announced:
            raise ValueError("its list of files differs from the one announced")
        entries = parse_inventory(inventory)
        check_entries(entries)
        # No name leads out of the folder, and none is below a link: the entries were checked.
        left, unpacker = {entry.path: entry for entry in entries}, Unpacker(folder, {"file": FILE, "program": PROGRAM})
        for member in members:
            entry = left.pop(member.name.rstrip("/"), None)
            if entry is None or (member.kind, member.size, member.target) != (entry.kind, entry.size, entry.target):
                raise ValueError(f"{member.name!r} differs from its list of files")
            try:
                digest = unpacker.write(entry.path, entry.kind, entry.target, reader.content())
            except OSError as error:
                raise _WriteError(error) from error
            if digest != entry.sha256:
                raise ValueError(f"{entry.path!r} differs in content from its list of files")
        if left:
            raise ValueError(f"it lacks {next(iter(left))!r}")
    (folder / INVENTORY).write_bytes(inventory)
    (folder / MANIFEST).write_bytes(manifest)
    for name in (INVENTORY, MANIFEST):
        (folder / name).chmod(FILE)


def _head(members: Iterator[Member], reader: ArchiveReader, name: str) -> bytes:
    member = next(members, None)
    content = reader.text(_MOST_HEAD) if member is not None and member.name == name else b""
    if not content:
        raise ValueError(f"it does not begin with {name}")
    return content
