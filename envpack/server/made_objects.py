"""What a Triton server and the processes that it starts make outside of the server's own folder.

`supervisor_child` imports this module, so it imports the standard library only, and of that only what loads fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import stat
import time

from envpack.server import proc

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where the kernel keeps POSIX shared memory
EXTRACTED = "/tmp/python_env_"  # noqa: S108 - hard-coded in the server, which ignores TMPDIR
_SERVER = "tritonserver"
_CREATED = 0x100 | 0x80  # of inotify: IN_CREATE, IN_MOVED_TO
_NONBLOCKING_CLOSED = 0o4000 | 0o2000000  # of inotify_init1()
_BUSY_SECONDS = 2.0  # after a change in a folder, in which the server can be extracting to it
_LARGEST_RECORD = 1 << 20  # bytes
Identity = tuple[int, int, int]
LIBC = ctypes.CDLL(None)


def identity(path: str) -> Identity | None:
    found = _lstat(path)
    return (found.st_dev, found.st_ino, found.st_uid) if found else None


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


class MadeObjects:
    """The shared memory and the extracted environments that a server and its descendants make.

    A name proves nothing, because a model can choose it. Shared memory belongs to the server if it appeared while the
    server ran and, when it was first seen, one of our processes had it open. An extracted environment belongs to the
    server if the server process itself, in which no code of a model runs, works in it.
    """

    def __init__(self, prefix: str, record: str) -> None:
        self._prefix = prefix
        self._record = record
        self._known = self._names()
        self._folders: dict[str, tuple[Identity, int, float]] = {}  # with the time of the last change, and until when
        self.found: dict[str, Identity] = {}
        self._watch = LIBC.inotify_init1(_NONBLOCKING_CLOSED)
        for folder in (SHARED_MEMORY, os.path.dirname(EXTRACTED)):
            self._notice(folder)

    def fileno(self) -> int:
        """A descriptor that becomes readable when to look again; negative if the kernel has none to spare."""
        return int(self._watch)

    def look(self, server: int) -> float:
        """Record what was made since the last call; returns after how many seconds to look again at the latest."""
        if self._watch >= 0:
            drain(self._watch)
        names = self._names()
        new = {path for path, _ in names - self._known}
        self._known = names
        regions = {}
        for path in new:
            found = identity(path)
            if found is None or found[2] != os.getuid():
                continue
            if _is_extracted(path):
                self._folders[path] = found, -1, 0.0
                self._notice(path)
            else:
                regions[path] = found
        if regions:
            used = _Uses(proc.descendants())
            for path, found in regions.items():
                if used.has(path, found):
                    self._add(path, found)
        busy = [self._look_at(path, server) for path in list(self._folders)]
        return 0.01 if any(busy) else 1.0 if self._watch >= 0 else 0.05

    def _look_at(self, path: str, server: int) -> bool:
        """Find out whether a folder is the server's; returns whether the server may be extracting to it now."""
        found, changed, until = self._folders[path]
        folder = _lstat(path)
        if folder is None or (folder.st_dev, folder.st_ino, folder.st_uid) != found:
            del self._folders[path]
            return False
        if folder.st_mtime_ns != changed:
            until = time.monotonic() + _BUSY_SECONDS
            self._folders[path] = found, folder.st_mtime_ns, until
        if time.monotonic() > until:
            return False
        if _Uses([server], mapped=False).below(path):
            self._add(path, found)
            del self._folders[path]
            return False
        return True

    def _add(self, path: str, found: Identity) -> None:
        self.found[path] = found
        # The user may have removed the folder of a server that was left running, and a model may have put a pipe there.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with contextlib.suppress(OSError):
            record = os.open(self._record, flags, 0o600)
            try:
                os.write(record, (json.dumps([path, *found]) + "\n").encode("ascii"))
            finally:
                os.close(record)

    def _names(self) -> set[tuple[str, int]]:
        shared = {entry for entry in _entries(SHARED_MEMORY) if not _is_region(entry[0], self._prefix)}
        return shared | {entry for entry in _entries(os.path.dirname(EXTRACTED)) if _is_extracted(entry[0])}

    def _notice(self, folder: str) -> None:
        if self._watch >= 0:
            LIBC.inotify_add_watch(self._watch, os.fsencode(folder), _CREATED)

    def remove(self, *, crashed: bool) -> list[str]:
        """Remove what was made; call it when no process of the server is left; returns one phrase for each object."""
        left = remove_made(self.found, self._prefix)
        if crashed and not any(proc.text(pid, "comm").strip() == _SERVER for pid in proc.all_pids()):
            for path, (found, _, _) in self._folders.items():
                # Nothing proves whose it is, so remove it only if it is empty and no server runs.
                with contextlib.suppress(OSError):
                    if identity(path) == found:
                        os.rmdir(path)
                        left.append(f"folder {path}")
        return left


class _Uses:
    def __init__(self, pids: list[int], *, mapped: bool = True) -> None:
        self._paths: set[str] = set()
        self._inodes: set[tuple[int, int]] = set()
        for pid in pids:
            self._paths.update(proc.open_files(pid))
            for line in proc.text(pid, "maps").splitlines() if mapped else ():
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and fields[5].startswith(SHARED_MEMORY):
                    major, minor = (int(part, 16) for part in fields[3].split(":"))
                    self._inodes.add((os.makedev(major, minor), int(fields[4])))

    def has(self, path: str, found: Identity) -> bool:
        return found[:2] in self._inodes or path in self._paths or self.below(path)

    def below(self, folder: str) -> bool:
        """Whether one of them works in this folder, or uses a file below it."""
        return any(path == folder or path.startswith(f"{folder}/") for path in self._paths)


def _is_extracted(path: str) -> bool:
    return path.startswith(EXTRACTED) and len(path) == len(EXTRACTED) + 6 and "/" not in path[len(EXTRACTED) :]


def _is_region(path: str, prefix: str) -> bool:
    return path.startswith(f"{SHARED_MEMORY}/{prefix}")


def read_made(file: str) -> dict[str, Identity]:
    made: dict[str, Identity] = {}
    for line in _record_text(file).splitlines():  # what can be read counts; the last line may be incomplete
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            path, device, inode, owner = json.loads(line)
            if os.path.dirname(path) == SHARED_MEMORY or _is_extracted(path):
                made[path] = device, inode, owner
    return made


def _record_text(file: str) -> str:
    """The text of a record; empty if a model has put something else in its place."""
    try:
        record = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(record).st_mode):
                return ""
            return os.read(record, _LARGEST_RECORD).decode("ascii", "replace")  # no limit: a regular file
        finally:
            os.close(record)
    except OSError:
        return ""


def remove_made(made: dict[str, Identity], prefix: str) -> list[str]:
    """Remove the regions with a prefix, and recorded objects that no process uses; returns one phrase for each."""
    left = []
    for path, _ in sorted(_entries(SHARED_MEMORY)):
        if _is_region(path, prefix):
            remove(path)
            left.append(f"shared memory {path}")
    same = {path: found for path, found in sorted(made.items()) if identity(path) == found}
    others = _Uses(proc.all_pids()) if same else None
    for path, found in same.items():
        kind = "extracted environment" if _is_extracted(path) else "shared memory"
        if others and others.has(path, found):
            left.append(f"{kind} {path}, not removed because another process uses it")
        else:
            remove(path)
            left.append(f"{kind} {path}")
    return left


def remove(path: str) -> None:
    with contextlib.suppress(OSError):  # it is gone
        if stat.S_ISDIR(os.lstat(path).st_mode):
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _entries(folder: str) -> list[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            return [(entry.path, entry.inode()) for entry in entries]
    except OSError:
        return []


def drain(descriptor: int) -> None:
    """Read everything from a descriptor that does not block."""
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, 1 << 16):  # no limit: it does not block
            pass
