"""The errors that envpack raises for users, and findings: what is wrong with files, as a value.

Each class has one exit code. Each ``kind`` is one way to fail and has an entry in ``docs/reference/errors.md``. The
message names the problem, ``where`` the file or line, and ``hint`` the solution. What the system refuses, and full
disks, become such errors here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.support.redaction import redact


class EnvpackError(Exception):
    """Base of all expected failures. The command line shows one line, never a traceback.

    Secrets in addresses are removed from every part.

    Args:
        kind: slug of the entry in ``docs/reference/errors.md``.
        message: the problem, in one sentence without a full stop.
        hint: what the user can do; may be empty.
        where: file, ``file:line``, folder or address that the message is about; may be empty.
        details: full output of the program that failed, if the message is only a part of it; may be empty.
    """

    exit_code: int = 70

    def __init__(self, kind: str, message: str, hint: str = "", where: str = "", *, details: str = "") -> None:
        super().__init__(
            kind, redact(message), redact(hint), redact(where)
        )  # with which it is made again from a pickle
        self.message = redact(message)
        self.kind = kind
        self.where = redact(where)
        self.hint = redact(hint)
        self.details = redact(details)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{hint}"


class UsageError(EnvpackError):
    """The arguments of a command or an API call are invalid, or exclude each other."""

    exit_code = 2


def misuse(command: str, message: str) -> UsageError:
    return UsageError("usage", message, f"envpack {command} --help says what it takes")


class InputError(EnvpackError):
    """A file or folder of the user is invalid: configuration, requirements, model."""

    exit_code = 3


class EnvironmentBuildError(EnvpackError):
    """An execution environment could not be resolved, installed or packed."""

    exit_code = 4
    fitting_python = ""  # for which the requirements resolve, if they do not for the one that was chosen


class StubError(EnvpackError):
    """A stub could not be built, inspected or placed."""

    exit_code = 5


class StorageError(EnvpackError):
    """A file or folder cannot be read or written: the disk is full, a permission is missing, or it is another thing."""

    exit_code = 7


class ServerError(EnvpackError):
    """A server, container or cluster could not be found, started or stopped."""

    exit_code = 6


class ModelsError(EnvpackError):
    """Errors of models in a command for all of them or for none; kind and exit code are the first's."""

    errors: Mapping[str, EnvpackError]  # the errors by the names of the models
    total: int  # number of models of the command

    @classmethod
    def raise_any(cls, errors: Mapping[str, EnvpackError], total: int) -> None:
        """Raise the errors of models, if there are any; the error itself if it is that of all models."""
        if not errors:
            return
        first, *others = errors.values()
        if len(errors) == total and all(other is first for other in others):
            raise first
        count = f"{len(errors)} of {total} models: {', '.join(errors)}"
        error = cls(first.kind, f"nothing was changed because of {count}", first.hint, first.where)
        error.exit_code, error.errors, error.total = first.exit_code, dict(errors), total
        raise error


Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """A problem, or a possible problem."""

    kind: str  # slug of its entry in ``docs/reference/errors.md``
    what: str  # one sentence without a full stop
    fix: str  # how to resolve it
    where: Path = Path()  # the file or folder; empty if ``what`` names it
    severity: Severity = "error"  # ``"error"`` if no server can serve it, ``"warning"`` if that depends on the server


def fault(kind: str, where: Path, what: str, fix: str) -> Finding:
    """An error: no server can serve it."""
    return Finding(kind, what, fix, where)


def caution(kind: str, where: Path, what: str, fix: str) -> Finding:
    """A warning: some servers cannot serve it."""
    return Finding(kind, what, fix, where, "warning")


def refuse(findings: Iterable[Finding]) -> None:
    for one in findings:
        raise InputError(one.kind, one.what, one.fix, "" if one.where == Path() else str(one.where))


def finding_of_error(error: EnvpackError, where: Path) -> Finding:
    """The finding for an error that a command would raise; ``where`` applies if the error has no path."""
    return Finding(error.kind, error.message, error.hint, Path(error.where) if error.where else where)


_FULL = {errno.ENOSPC, errno.EDQUOT}
_LIMITS = {errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_OF_TARGETS = {*_FULL, errno.EFBIG, errno.EROFS}  # of a copy or a link, these are said of the new file
_OF_FILES = {errno.EIO, errno.ESTALE, errno.EFBIG, errno.ENXIO, errno.ENODEV, errno.EREMOTEIO, errno.EROFS, errno.ELOOP}
_REFUSED = {  # what helps; some file systems say EPERM to a chmod by who does not own the file
    errno.EACCES: "change its permissions",
    errno.EROFS: "mount its file system for writing",
    errno.EPERM: "let this user own and change its files (uid= of the mount, chattr -i)",
}
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EIO}  # of file systems without symbolic links


@contextlib.contextmanager
def storage_errors(where: Path) -> Iterator[None]:
    """Turn "disk full" and "permission denied" within the block into errors."""
    try:
        yield
    except OSError as error:
        # That of shutil.copytree is a list of texts without error numbers.
        if error.errno in _FULL or (error.errno is None and says_disk_full(str(error))):
            raise disk_full(where) from error
        if error.errno in _REFUSED:
            raise (_link_refused(error) or _refused(error, where)) from error
        raise


_ELSEWHERE = "set ENVPACK_CACHE_DIR to a folder on another one, or mount it without noexec"


def require_programs(folder: Path, fix: str = _ELSEWHERE) -> None:
    """Refuse a folder, which need not exist, before programs are made or started there that could not run."""
    place = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        what = "no program can run in this folder: its file system is mounted with noexec"
        raise StorageError("noexec", what, fix, str(folder))


def require_proc(proc: Path = Path("/proc")) -> None:
    """Refuse a system without ``/proc``, in which no process of a model is found, and no stub starts."""
    if not (proc / "self/fd").is_dir():
        what, fix = "it is not mounted, and no process is found without it", "mount -t proc proc /proc"
        raise StorageError("file-unusable", what, fix, str(proc))


def system_error(error: BaseException) -> StorageError | None:
    """The error for what the system refuses: a file, memory, another process; None for other causes."""
    if isinstance(error, OSError):
        return _file_error(error)
    if isinstance(error, MemoryError):
        return system_limit(str(error) or "out of memory")
    return limit_said_in(str(error))  # a library's own exceptions


def _file_error(error: OSError) -> StorageError | None:
    if error.errno in _FULL:
        return disk_full(_name_of(error)) if _name_of(error) else _some_disk_full()
    if error.errno in {*_LIMITS, errno.EAGAIN}:  # a further process or thread
        return system_limit(error.strerror or "")
    if not _name_of(error):
        return _unnamed(error) if error.errno in _OF_FILES else None
    if refused := _link_refused(error):
        return refused
    if error.errno in _REFUSED:
        return _refused(error, Path(_name_of(error)))
    fix = (
        SMALLER_FILES if error.errno == errno.EFBIG else "look at what this path is, and give another one or repair it"
    )
    return StorageError("file-unusable", f"cannot be read or written: {error.strerror}", fix, _name_of(error))


def _link_refused(error: OSError) -> StorageError | None:
    """The error for a relative symbolic link that a file system cannot have; that of rclone says EIO."""
    if error.errno not in NO_LINKS or not error.filename2 or Path(os.fsdecode(error.filename)).is_absolute():
        return None
    fix = "use a file system that has them, or --format tar.gz; if this is in the cache, set ENVPACK_CACHE_DIR"
    return StorageError(
        "file-unusable", f"no symbolic link can be made here: {error.strerror}", fix, os.fsdecode(error.filename2)
    )


def _refused(error: OSError, where: Path) -> StorageError:
    what = f"cannot be read or written: {error.strerror}"
    fix = f"{_REFUSED[error.errno or 0]}, or set ENVPACK_CACHE_DIR if it is in the cache"
    return StorageError("not-writable", what, fix, _name_of(error) or str(where))


def system_limit(reason: str) -> StorageError:
    """The error (kind ``system-limit``) for what the system refuses to any program: memory, processes, open files."""
    fix = "raise the limits of this shell or container (ulimit -a shows them), or end other programs"
    return StorageError("system-limit", f"the system refuses more of what this command needs: {reason}", fix)


SMALLER_FILES = "raise the limit for the size of files (ulimit -f unlimited), or use a file system that has larger ones"


def _unnamed(error: OSError) -> StorageError:
    disks = "check the disks and mounts of the repository, the cache and the folder for temporary files"
    fix = SMALLER_FILES if error.errno == errno.EFBIG else disks
    return StorageError("file-unusable", f"a file cannot be read or written: {error.strerror}", fix)


def _some_disk_full() -> StorageError:
    fix = "free some space on the disks of the repository, the cache (ENVPACK_CACHE_DIR) and temporary files (TMPDIR)"
    return StorageError("disk-full", "a disk, or your quota of it, is full", fix)


def _name_of(error: OSError) -> str:
    name = error.filename2 if error.errno in _OF_TARGETS and error.filename2 else error.filename
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""


def scarce_folder(storage: Path) -> Path:
    """The folder in which a program lacks room: ``storage``, or that of temporary files if its disk has less."""
    temporary = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - where programs write without the variable
    return min((storage, temporary), key=_free) if temporary.is_dir() else storage


def _free(folder: Path) -> int:
    disk = os.statvfs(next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists()))
    return disk.f_bavail * disk.f_frsize if disk.f_favail or not disk.f_files else 0


def says_disk_full(output: str) -> bool:
    """Whether the output of a program, in English, says that a disk is full, or what its user may have of it."""
    return any(os.strerror(code) in output for code in _FULL)


def refused_by_system(output: str, storage: Path) -> StorageError | None:
    """The error if the output of a program says that a disk is full, or a limit reached; it does not say which disk."""
    return disk_full(scarce_folder(storage)) if says_disk_full(output) else limit_said_in(output)


# Of the system, of Python, of zstd, of programs in Rust, and of a compiler's driver.
_LIMIT = re.compile(
    r"can't (?:start new|spawn worker) thread|ThreadPoolBuildError|not enough memory|"
    r"memory allocation of \d+ bytes failed|Killed signal terminated program|"
    + "|".join(os.strerror(code) for code in sorted(_LIMITS))
)


def limit_said_in(output: str) -> StorageError | None:
    """The error (kind ``system-limit``) if the output of a program or library names a limit of the system."""
    said = _LIMIT.search(output)
    return system_limit(said[0]) if said else None


def disk_full(where: Path | str) -> StorageError:
    """The error (kind ``disk-full``) for a full disk; the caller leaves no incomplete files behind."""
    fix = "free some space, or inodes if df -i shows none; ENVPACK_CACHE_DIR moves the cache, TMPDIR temporary files"
    return StorageError("disk-full", "the disk, or your quota of it, is full; no file is half-written", fix, str(where))
