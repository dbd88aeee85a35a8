"""conda-pack's library, made to pack what lies in the prefix.

By itself conda-pack takes the originals of changed files from the package cache, replaces ``bin/activate`` by its own
(which lets the user's site-packages in), lists every text file for ``conda-unpack`` and leaves byte code out.
"""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from envpack.archive.folder import is_left_out
from envpack.errors import EnvironmentBuildError

_TIME = 315532800  # 1980-01-01: the same bytes whenever it is packed
_NOT_THEIRS = {"bin/activate", "bin/activate.fish", "bin/deactivate"}


def pack_prefix(prefix: Path, archive: tarfile.TarFile) -> None:
    """Add every file of a conda prefix to an open archive, sorted, without owner and time.

    Files that name the prefix are listed in ``bin/conda-unpack``, which is added only if there are any.

    Raises:
        EnvironmentBuildError: kind ``conda-pack-failed``: the prefix is none that conda-pack accepts.
        OSError: reading or writing failed.

    """
    from conda_pack.core import CondaEnv, CondaPackException, Packer

    try:
        found = CondaEnv.from_prefix(str(prefix), on_missing_cache="ignore", ignore_missing_files=True)
    except CondaPackException as error:
        raise EnvironmentBuildError(
            f"conda-pack refuses the environment: {error}",
            kind="conda-pack-failed",
            where=str(prefix),
            hint=f"remove {prefix} and build again",
        ) from error
    writer = _Writer(archive)
    packer = Packer(found.prefix, writer)
    for file in CondaEnv(found.prefix, _files(prefix)):
        packer.add(file)
    if packer.prefixes:
        writer.refused = _NOT_THEIRS
        packer.finish()


def _files(prefix: Path) -> list[object]:
    from conda_pack.core import File, load_files

    root, files = os.fsencode(prefix), []
    for name in load_files(str(prefix)):
        if is_left_out(name):
            continue
        source = prefix / name
        names_prefix = source.is_file() and not source.is_symlink() and root in source.read_bytes()
        mode = "unknown" if names_prefix else None  # "unknown": conda-pack finds out and records it
        files.append(File(str(source), name, is_conda=False, prefix_placeholder=None, file_mode=mode))
    return files


class _Writer:
    """What conda-pack's packer writes to: members that depend on nothing but name, content and executable bit."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self.refused: set[str] = set()

    def add(self, source: str, target: str) -> None:
        """Add a file, a link or an empty folder."""
        if target in self.refused:
            return
        path = Path(source)
        if path.is_symlink():
            info = _member(target, 0o777)
            info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
            self._archive.addfile(info)
        elif path.is_dir():
            info = _member(target, 0o755)
            info.type = tarfile.DIRTYPE
            self._archive.addfile(info)
        else:
            with path.open("rb") as content:
                info = _member(target, _mode(path))
                info.size = os.fstat(content.fileno()).st_size
                self._archive.addfile(info, content)

    def add_bytes(self, source: str, content: bytes, target: str) -> None:
        """Add a file with this content and the executable bit of ``source``."""
        info = _member(target, _mode(Path(source)))
        info.size = len(content)
        self._archive.addfile(info, io.BytesIO(content))


def _mode(path: Path) -> int:
    return 0o755 if path.stat().st_mode & 0o100 else 0o644


def _member(name: str, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = mode, _TIME
    return info
