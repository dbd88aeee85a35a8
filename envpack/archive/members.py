"""Members of a tar file: one header for each entry of an environment, the same bytes wherever and whenever."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from envpack.environment import Entry
from envpack.support.errors import EnvironmentBuildError

BLOCK = 512  # bytes; what tar files are made of
TIME = 315532800  # 1980-01-01: the same bytes whenever it is packed
END = bytes(2 * BLOCK)  # of an archive
_NAME = 100  # bytes that a header has for a name
_OCTAL = 8 << 30  # bytes; larger sizes are written in another way
_KINDS = {
    "file": (b"0", b"0000644\0"),
    "program": (b"0", b"0000755\0"),
    "link": (b"2", b"0000777\0"),
    "folder": (b"5", b"0000755\0"),
}
_OWNER = b"0000000\0" * 2  # user and group
_TIME = b"%011o\0" % TIME
_NO_SUM = b"        "
_REST = b"ustar  \0" + bytes(BLOCK - 265)  # GNU's mark; no names of owners


def header(entry: Entry) -> bytes:
    """What comes before the content. GNU's form, which has no limit on names and gives them as bytes.

    The other form with long names (pax) says that they are UTF-8, which a server in the C locale has to convert. It is
    written here because the standard library's differs between versions of Python, and takes four times as long.
    """
    kind, mode = _KINDS[entry.kind]
    name = entry.path.encode("utf-8", "surrogateescape") + (b"/" if entry.kind == "folder" else b"")
    target = entry.target.encode("utf-8", "surrogateescape")
    return b"".join((_long(b"K", target), _long(b"L", name), _block(name, kind, mode, entry.size, target)))


def _long(kind: bytes, name: bytes) -> bytes:
    """A member before the member, with a name that is too long for its header."""
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
    """What comes after ``size`` bytes of content."""
    return bytes(-size % BLOCK)


def check_entries(entries: Sequence[Entry]) -> None:
    """Make sure that a server takes entries under these names, in a folder as in an archive.

    Servers from 26.06 refuse an archive with a member below a link, an absolute name or one with ``..``; with older
    ones such a member lands outside of the environment.

    Raises:
        EnvironmentBuildError: kind ``link-leaves-environment`` or ``bad-archive``.

    """
    links = {entry.path for entry in entries if entry.kind == "link"}
    seen: set[str] = set()
    good: set[str] = {""}  # folders
    for entry in entries:
        if entry.path in seen:
            raise _bad(entry, "occurs twice")
        seen.add(entry.path)
        folder, _, name = entry.path.rpartition("/")
        if folder not in good:
            if not is_canonical(folder):
                raise _bad(entry, "is no name within an environment")
            if any(above in links for above in _upwards(folder)):
                raise _bad(entry, "lies below a link")
            good.add(folder)
        if name in ("", ".", "..") or entry.path.startswith("/"):
            raise _bad(entry, "is no name within an environment")
        if entry.kind == "link" and leaves(entry.path, entry.target):
            raise EnvironmentBuildError(
                f"a link of {entry.package} leaves the environment: {entry.path} -> {entry.target}",
                kind="link-leaves-environment",
                hint=f"--exclude '/{entry.path}', or take another build of {entry.package}",
            )


def leaves(path: str, target: str) -> bool:
    """Whether a link at ``path`` that says ``target`` points out of the folder that ``path`` is relative to."""
    if target.startswith("/"):
        return True
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target)).split("/")[0] == ".."


def is_canonical(path: str) -> bool:
    """Whether a path is relative, has no ``..`` and no part that means nothing."""
    return path == posixpath.normpath(path) and path != "." and path.split("/", maxsplit=1)[0] not in ("", "..")


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


def _bad(entry: Entry, reason: str) -> EnvironmentBuildError:
    return EnvironmentBuildError(
        f"a server would refuse {entry.path!r} of {entry.package}: it {reason}",
        kind="bad-archive",
        hint="leave it out with --exclude, or leave out the package that it belongs to",
    )
