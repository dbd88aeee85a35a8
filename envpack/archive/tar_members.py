"""Turns the files of an execution environment into the bytes of a tar file, with several threads.

The threads read, verify and compress. Headers have the same bytes on every machine and at any time. The work is divided
by the entries' sizes alone, so the result is the same for any number of threads. Only a few portions are in memory at
any time.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from envpack.environment.inventory import OWN, UNKNOWN, Entry
from envpack.support.errors import EnvironmentBuildError
from envpack.support.pool import Pool, usable_cores

BLOCK = 512  # bytes of a block of a tar file
TIME = 315532800  # 1980-01-01: the same bytes whenever it is packed
END = bytes(2 * BLOCK)  # end of an archive
_NAME = 100  # bytes of the name field in a header
_OCTAL = 8 << 30  # bytes; larger sizes are written in binary
_KINDS = {
    "file": (b"0", b"0000644\0"),
    "program": (b"0", b"0000755\0"),
    "link": (b"2", b"0000777\0"),
    "folder": (b"5", b"0000755\0"),
}
_OWNER = b"0000000\0" * 2  # user and group
_TIME = b"%011o\0" % TIME
_NO_SUM = b"        "
_REST = b"ustar  \0" + bytes(BLOCK - 265)  # GNU's magic; no names of owners
PORTION = 2 << 20  # bytes of content; less makes archives larger, more takes more memory
_MOST_THREADS = 16  # two portions each

_SLACK = 256 << 10  # bytes of a buffer for headers; a portion with more gets a larger one

Compress = Callable[[memoryview], bytes]
Bytes = bytes | memoryview


def header(entry: Entry) -> bytes:
    """The header of a member, in GNU's format, which stores names of any length as bytes.

    The other format with long names, pax, declares them as UTF-8, which a server in the C locale has to convert. The
    standard library is not used because its bytes differ between versions of Python, and it takes four times as long.
    """
    kind, mode = _KINDS[entry.kind]
    name = entry.path.encode("utf-8", "surrogateescape") + (b"/" if entry.kind == "folder" else b"")
    target = entry.target.encode("utf-8", "surrogateescape")
    return b"".join((_long(b"K", target), _long(b"L", name), _block(name, kind, mode, entry.size, target)))


def _long(kind: bytes, name: bytes) -> bytes:
    """An extra member before the member, with a name that is too long for the header."""
    if len(name) <= _NAME:
        return b""
    content = name + b"\0"
    return _block(b"././@LongLink", kind, b"0000644\0", len(content), b"") + content + padding(len(content))


def _block(name: bytes, kind: bytes, mode: bytes, size: int, target: bytes) -> bytes:
    length = b"%011o\0" % size if size < _OCTAL else b"\x80" + size.to_bytes(11)
    before = name[:_NAME].ljust(_NAME, b"\0") + mode + _OWNER + length + _TIME
    after = kind + target[:_NAME].ljust(_NAME, b"\0") + _REST
    return b"%b%06o\0 %b" % (before, sum(before) + sum(_NO_SUM) + sum(after), after)


def padding(size: int) -> bytes:
    """The zeros that fill up the last block after ``size`` bytes of content."""
    return bytes(-size % BLOCK)


def member(name: str, content: bytes) -> bytes:
    return header(Entry(name, "file", OWN, len(content))) + content + padding(len(content))


def check_entries(entries: Sequence[Entry]) -> None:
    """Check that servers accept these names: older ones write a member below a link outside of the environment."""
    links = {entry.path: entry.target for entry in entries if entry.kind == "link"}
    escaping = set(escaping_links(links))
    seen: set[str] = set()
    good: set[str] = {""}  # folders
    for entry in entries:
        if entry.path in seen:
            raise _bad(entry, "occurs twice")
        seen.add(entry.path)
        folder, _, name = entry.path.rpartition("/")
        if folder not in good:
            if not is_canonical(folder):
                raise _bad(entry, "is not a valid path in an environment")
            if any(above in links for above in upwards(folder)):
                raise _bad(entry, "is below a link")
            good.add(folder)
        if name in ("", ".", "..") or entry.path.startswith("/"):
            raise _bad(entry, "is not a valid path in an environment")
        if entry.path in escaping:
            what = f"a link of {entry.package} leaves the environment: {entry.path} -> {entry.target}"
            other = "put a copy in its place" if entry.package == UNKNOWN else f"use another build of {entry.package}"
            fix = f"add --set 'exclude=/{entry.path}', or {other}"
            raise EnvironmentBuildError("link-leaves-environment", what, fix)


def leaves(path: str, target: str) -> bool:
    """Whether a link at ``path`` with this target leaves the folder that ``path`` is relative to."""
    if target.startswith("/"):
        return True
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target)).split("/")[0] == ".."


def is_canonical(path: str) -> bool:
    """Whether a path is relative and normalised, without ``..``."""
    return path == posixpath.normpath(path) and path != "." and path.split("/", maxsplit=1)[0] not in ("", "..")


def upwards(path: str) -> Iterator[str]:
    """A path and the folders above it."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _bad(entry: Entry, reason: str) -> EnvironmentBuildError:
    what = f"a server would reject {entry.path!r} of {entry.package}: it {reason}"
    fix = "leave it out with --set exclude=PATTERN, or remove its package from the requirements"
    return EnvironmentBuildError("bad-archive", what, fix)


@dataclass(frozen=True, slots=True)
class _Packed:
    result: Bytes  # its bytes; valid until the buffer is used again
    buffer: bytearray | None = None  # the memory it was read into, if it is still in use
    content: slice | None = None  # the slice of the buffer with a part of a large file


@dataclass(frozen=True, slots=True)
class Portion:
    """The work of one thread at a time: some whole entries, or a part of one large file."""

    entries: tuple[Entry, ...]
    start: int = 0  # offset of the part in the file of the only entry
    stop: int = 0  # end of the part; 0 for whole entries


def portions(entries: Iterable[Entry]) -> Iterator[Portion]:
    """Divide entries into portions; the same entries are always divided in the same way."""
    gathered: list[Entry] = []
    size = 0
    for entry in entries:
        if gathered and size + entry.size > PORTION:
            yield Portion(tuple(gathered))
            gathered, size = [], 0
        if entry.size > PORTION:
            for start in range(0, entry.size, PORTION):
                yield Portion((entry,), start, min(start + PORTION, entry.size))
        else:
            gathered.append(entry)
            size += entry.size
    if gathered:
        yield Portion(tuple(gathered))


class Packer:
    """Turns portions into compressed bytes, in order, with several threads. Use it in a ``with`` block."""

    def __init__(self, prefix: Path, compress: Compress | None, threads: int = 0) -> None:
        self._prefix = str(prefix)
        self._compress = compress
        self._threads = min(threads or usable_cores(), _MOST_THREADS)
        self._pool = Pool(self._threads)
        self._verifier = Pool(1)  # verifies large files, whose parts must be hashed in order
        self._free: list[bytearray] = []

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.__exit__(*error)
        self._verifier.__exit__(*error)

    def packed(self, divided: Sequence[Sequence[Portion]]) -> Iterator[Iterator[Bytes]]:
        """The compressed bytes of each group, in order. Buffers are reused: use a piece before the next one."""
        waiting: deque[Future[_Packed]] = deque()
        coming = iter([portion for group in divided for portion in group])

        def result() -> _Packed:
            while len(waiting) <= self._threads and (portion := next(coming, None)) is not None:
                waiting.append(self._pool.submit(self._pack, portion))
            return waiting.popleft().result()

        for group in divided:
            yield self._verified(group, result)

    def _verified(self, group: Sequence[Portion], result: Callable[[], _Packed]) -> Iterator[Bytes]:
        digest = hashlib.sha256()
        for portion in group:
            packed = result()
            if not portion.stop:
                yield packed.result
            elif packed.buffer is not None and packed.content is not None:  # a part of a large file
                verified = self._verifier.submit(digest.update, memoryview(packed.buffer)[packed.content])
                yield packed.result  # written while it is verified; a damaged archive is discarded
                verified.result()
                (entry,) = portion.entries
                if portion.stop == entry.size:
                    if digest.hexdigest() != entry.sha256:
                        raise damaged(self._prefix, entry)
                    digest = hashlib.sha256()
            if packed.buffer is not None:
                self._free.append(packed.buffer)

    def _pack(self, portion: Portion) -> _Packed:
        if portion.stop:
            return self._pack_part(portion)
        headers = [header(entry) for entry in portion.entries]
        length = sum(
            len(before) + entry.size + -entry.size % BLOCK
            for before, entry in zip(headers, portion.entries, strict=True)
        )
        buffer = self._buffer(length)
        room = memoryview(buffer)
        at = 0
        for before, entry in zip(headers, portion.entries, strict=True):
            room[at : at + len(before)] = before
            at += len(before)
            if entry.size:
                content = room[at : at + entry.size]
                self._read(entry, 0, content)
                if hashlib.sha256(content).hexdigest() != entry.sha256:
                    raise damaged(self._prefix, entry)
                at = _padded(room, at + entry.size, entry.size)
        if self._compress is None:
            return _Packed(room[:length], buffer)
        packed = self._compress(room[:length])
        self._free.append(buffer)
        return _Packed(packed)

    def _pack_part(self, portion: Portion) -> _Packed:
        (entry,) = portion.entries
        before = b"" if portion.start else header(entry)
        content = slice(len(before), len(before) + portion.stop - portion.start)
        buffer = self._buffer(content.stop + BLOCK)
        room = memoryview(buffer)
        room[: content.start] = before
        self._read(entry, portion.start, room[content])
        end = _padded(room, content.stop, entry.size) if portion.stop == entry.size else content.stop
        return _Packed(self._compress(room[:end]) if self._compress else room[:end], buffer, content)

    def _buffer(self, length: int) -> bytearray:
        """A used buffer if possible, since the kernel has to clear each page of a new one."""
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = bytearray(max(length, PORTION + _SLACK))
        return buffer if len(buffer) >= length else bytearray(length)

    def _read(self, entry: Entry, start: int, room: memoryview) -> None:
        try:
            file = os.open(f"{self._prefix}/{entry.path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise damaged(self._prefix, entry) from None
            raise
        try:
            beyond = bytearray(1)  # filled only if the file has grown; cheaper than fstat
            expected = len(room) if start + len(room) == entry.size else len(room) + 1
            if os.preadv(file, (room, beyond), start) != expected:
                raise damaged(self._prefix, entry)
        finally:
            os.close(file)


def _padded(room: memoryview, end: int, size: int) -> int:
    """Pad the last block of ``size`` bytes that end at ``end``; returns the start of the next block."""
    after = padding(size)
    room[end : end + len(after)] = after
    return end + len(after)


def damaged(prefix: str, entry: Entry) -> EnvironmentBuildError:
    what = f"{entry.path} of {entry.package} changed since the environment was built"
    fix = f"remove {prefix} and build again; nothing but envpack may write there"
    return EnvironmentBuildError("store-damaged", what, fix, prefix)


_MOST_STEPS = 40  # links that Linux follows in one path, the first one included


def escaping_links(links: Mapping[str, str]) -> Iterator[str]:
    """The links that lead out of an environment, some of them by way of others."""
    return (path for path, target in links.items() if _escapes(path, target, links))


def _escapes(path: str, target: str, links: Mapping[str, str]) -> bool:
    here = path.split("/")[:-1]
    ahead = target.split("/")[::-1]  # what is still to be walked, the next part last
    if target.startswith("/"):
        return True
    steps = 0
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return True
            here.pop()
            continue
        following = links.get("/".join((*here, part)))
        if following is None:
            here.append(part)
        elif following.startswith("/"):
            return True
        elif (steps := steps + 1) >= _MOST_STEPS:
            return False  # the kernel does not follow it either (ELOOP)
        else:
            ahead += following.split("/")[::-1]
    return False
