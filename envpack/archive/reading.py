"""Reads an untrusted archive as a stream, with bounded memory, and without unpacking anything."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from envpack.support.bounded_reading import opened
from envpack.support.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

DEFAULT_LIMIT = 64 << 30  # bytes of an archive's content
_GZIP = b"\x1f\x8b"
# First bytes of formats that servers do not read.
_OTHER_FORMATS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip",
    b"hsqs": "squashfs",
    b"7z\xbc\xaf": "7z",
}
_USTAR = 257  # offset of the magic of a tar file
_AT_ONCE = 2 << 20  # bytes of one read; headers of real members are far smaller
_MOST_GLOBAL = 16  # global pax headers
_SPARSE = "is a sparse file, which envpack never writes"
_FREE = 256 << 20  # bytes of content after which the ratio is checked
_HIGHEST_RATIO = 100  # content to file; environments have 3 to 5
_MOST_MEMBERS = 500_000
_MOST_NAMES = 128 << 20  # characters of all names
_LONGEST_NAME = 4096  # bytes; PATH_MAX of Linux
_PAX_LENGTH = re.compile(rb"([1-9][0-9]{0,6}) ")
_MANY_DIGITS = re.compile(rb"[0-9]{65}")  # no time, size or digest has more; tarfile's patterns are quadratic in them


@dataclass(frozen=True)
class Member:
    """One member of an archive."""

    name: str  # as written in the archive, without a leading ./
    kind: str  # "file", "program", "link", "folder", "hard link", or "special" for all others
    size: int  # bytes of content
    target: str  # target of a link, as written in the archive


def is_archive(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with opened(path) as file:
            start = file.read(_USTAR + 5)
    except OSError:
        return False
    return start.startswith(_GZIP) or start[_USTAR:] == b"ustar"


def other_format(path: Path) -> str:
    """The format of an archive that servers do not read, ``""`` if a file is none."""
    with opened(path) as file:
        start = file.read(8)
    return next((name for begin, name in _OTHER_FORMATS.items() if start.startswith(begin)), "")


class ArchiveReader:
    """Iterates over the members of an archive, and reads the content of the current one."""

    def __init__(self, source: Path, stream: _Stream, form: str) -> None:
        self.form = form
        self._source = source
        self._stream = stream
        self._archive: tarfile.TarFile | None = None
        self._current: tarfile.TarInfo | None = None

    @property
    def sha256(self) -> str:
        """SHA-256 of the archive itself; complete after the iteration."""
        return self._stream.raw.digest.hexdigest()

    def expect(self, size: int) -> None:
        """Reject the archive if its content is larger than ``size`` bytes."""
        if size < self._stream.limit:
            self._stream.limit, self._stream.remedy = size, ""

    def __iter__(self) -> Iterator[Member]:
        count = names = 0
        with _reading(self._source):
            self._archive = archive = _Archive(self._stream)
            while (info := archive.next()) is not None:
                count += 1
                if count > _MOST_MEMBERS:
                    raise bomb(self._source, f"it has more than {_MOST_MEMBERS} members")
                archive.forget()
                if max(len(info.name), len(info.linkname)) > _LONGEST_NAME or len(archive.pax_headers) > _MOST_GLOBAL:
                    raise bomb(self._source, "a member has a name that is too long for any system")
                names += len(info.name) + len(info.linkname)
                if names > _MOST_NAMES:
                    raise bomb(self._source, f"its names have more than {_MOST_NAMES} characters")
                if info.size < 0:
                    raise tarfile.ReadError(f"the size of {info.name!r} is negative")
                self._current = info
                yield _member(info)
            self._stream.expect_end()

    def content(self) -> Iterator[bytes]:
        """The content of the current member, in pieces of up to 1 MiB."""
        if self._archive is None or self._current is None:
            return
        with _reading(self._source):
            content = self._archive.extractfile(self._current)
            while content and (piece := content.read(1 << 20)):
                yield piece

    def text(self, most: int) -> bytes:
        """The whole content of the current member; empty if it is larger than ``most`` bytes."""
        return b"" if self._current is None or self._current.size > most else b"".join(self.content())


@contextmanager
def opened_archive(
    path: Path, limit: int = DEFAULT_LIMIT, *, highest_ratio: int = _HIGHEST_RATIO
) -> Iterator[ArchiveReader]:
    with _reading(path), opened(path) as file:
        raw = _Raw(file)
        if file.read(2) == _GZIP:
            from isal import igzip

            file.seek(0)
            with igzip.IGzipFile(fileobj=raw, mode="rb") as unzipped:  # type: ignore[no-untyped-call]
                yield ArchiveReader(path, _Stream(path, unzipped, raw, limit, highest_ratio), "tar.gz")
        else:
            file.seek(0)
            yield ArchiveReader(path, _Stream(path, raw, raw, limit, highest_ratio), "tar")


class _Raw(io.RawIOBase):
    """The file itself; counts and hashes what is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        content = self._file.read(len(view))
        view[: len(content)] = content
        self.digest.update(content)
        self.size += len(content)
        return len(content)


class _Stream:
    """The stream that tarfile reads: forward only, with limits for one read and for all of them."""

    def __init__(self, source: Path, unpacked: Any, raw: _Raw, limit: int, highest_ratio: int) -> None:
        self.raw = raw
        self.limit = limit
        self.remedy = "; if you trust it, raise --limit"
        self._highest_ratio = highest_ratio
        self._source = source
        self._unpacked = unpacked
        self._position = 0
        self._last = b""
        self._check: Callable[[bytes], None] | None = None
        self._header, self._expected = b"", 0

    def expect_header(self, size: int, check: Callable[[bytes], None] | None = None) -> None:
        """Let ``check`` see the next ``size`` bytes before all are read; newer versions of tarfile read parts."""
        if size > _AT_ONCE:  # for example a name of that length
            raise bomb(self._source, f"a header needs {size} bytes of memory")
        self._header, self._expected, self._check = b"", size, check

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        while self._position < position and self.read(min(position - self._position, 1 << 20)):
            pass

    def read(self, size: int) -> bytes:
        content: bytes = self._unpacked.read(size)
        self._position += len(content)
        self._last = content
        if self._position > self.limit:
            raise bomb(self._source, f"its content is larger than {self.limit} bytes", self.remedy)
        if self._position > _FREE and self._position > self._highest_ratio * self.raw.size:
            raise bomb(self._source, f"its content is more than {self._highest_ratio} times as large as the file")
        if self._check:
            self._header += content
            if len(self._header) >= self._expected or len(content) < size:
                check, self._check = self._check, None
                check(self._header)
        return content

    def expect_end(self) -> None:
        """Read to the end of the archive, which consists of zeros."""
        if len(self._last) != tarfile.BLOCKSIZE or any(self._last):
            raise tarfile.ReadError("it is truncated, or a member is damaged")
        while content := self.read(1 << 20):
            if any(content):
                raise tarfile.ReadError("data follows after its end")


class _Archive(tarfile.TarFile):
    def __init__(self, stream: _Stream) -> None:
        super().__init__(fileobj=stream, tarinfo=_PlainInfo)  # type: ignore[arg-type]

    def forget(self) -> None:
        """Drop the members read so far; there may be many."""
        self.members: list[tarfile.TarInfo] = []


class _PlainInfo(tarfile.TarInfo):
    """A member without what only harms: sparse files, which can have any size, and pax headers that take hours."""

    def _proc_pax(self, tarfile_: tarfile.TarFile) -> tarfile.TarInfo:
        self._expect(tarfile_, lambda content: _check_pax(content[: self.size]))
        return super()._proc_pax(tarfile_)  # type: ignore[misc,no-any-return]

    def _proc_gnulong(self, tarfile_: tarfile.TarFile) -> tarfile.TarInfo:
        self._expect(tarfile_)
        return super()._proc_gnulong(tarfile_)  # type: ignore[misc,no-any-return]

    def _expect(self, tarfile_: tarfile.TarFile, check: Callable[[bytes], None] | None = None) -> None:
        tarfile_.fileobj.expect_header(self._block(self.size), check)  # type: ignore[attr-defined]

    def _proc_sparse(self, *_: object) -> NoReturn:
        raise tarfile.ReadError(f"{self.name!r} {_SPARSE}")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_sparse


def _check_pax(header: bytes) -> None:
    """Check that a pax header consists of records ``LENGTH KEY=VALUE``, before tarfile's patterns see it."""
    if _MANY_DIGITS.search(header):
        raise tarfile.ReadError("it has a pax header with a number that is too long")
    place = 0
    while place < len(header):
        length = _PAX_LENGTH.match(header, place)
        end = place + int(length[1]) if length else 0
        if not length or not length.end() < end <= len(header) or header[end - 1 : end] != b"\n":
            raise tarfile.ReadError("it has a damaged pax header")
        place = end


def _member(info: tarfile.TarInfo) -> Member:
    if info.isreg():
        kind = "program" if info.mode & 0o100 else "file"
    elif info.issym():
        kind = "link"
    elif info.isdir():
        kind = "folder"
    else:
        kind = "hard link" if info.islnk() else "special"
    name = info.name.removeprefix("./")
    return Member(name, kind, info.size if info.isreg() else 0, info.linkname)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn all errors of the libraries into one `InputError`."""
    import zlib

    from isal import isal_zlib

    unzipping: Any = isal_zlib.error
    try:
        yield
    except (
        OSError,
        EOFError,
        tarfile.TarError,
        zlib.error,
        unzipping,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error) or "damaged"
        fix = "copy it again from where it was made, or build it again"
        if reason.endswith(_SPARSE):
            fix = "make it again without tar's option --sparse, or build it again"
        raise InputError("environment-unreadable", f"this archive cannot be read: {reason}", fix, str(path)) from error


def bomb(path: Path, reason: str, remedy: str = "") -> InputError:
    """The error for an archive that would fill a disk or the memory."""
    what = f"the archive looks like a decompression bomb: {reason}"
    return InputError("archive-bomb", what, f"do not give it to a server{remedy}", str(path))
