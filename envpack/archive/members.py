"""Members of a tar file: one header for each entry of an environment, the same bytes wherever and whenever."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Iterator, Sequence

from envpack.environment.inventory import Entry
from envpack.errors import EnvironmentBuildError

BLOCK = 512  # bytes; what tar files are made of
TIME = 315532800  # 1980-01-01: the same bytes whenever it is packed
END = bytes(2 * BLOCK)  # of an archive
_TYPES = {"file": tarfile.REGTYPE, "program": tarfile.REGTYPE, "link": tarfile.SYMTYPE, "folder": tarfile.DIRTYPE}
_MODES = {"file": 0o644, "program": 0o755, "link": 0o777, "folder": 0o755}


def header(entry: Entry) -> bytes:
    """What comes before the content. GNU's form, which has no limit on names and gives them as bytes.

    The other form with long names (pax) says that they are UTF-8, which a server in the C locale has to convert.
    """
    info = tarfile.TarInfo(entry.path)
    info.type, info.mode, info.mtime = _TYPES[entry.kind], _MODES[entry.kind], TIME
    info.size, info.linkname = entry.size, entry.target
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


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
