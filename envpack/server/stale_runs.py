"""Removes what servers leave behind, at the end of a run and after runs that were killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from envpack.server import procfs

_PROC = Path("/proc")
_BOOT = _PROC / "sys/kernel/random/boot_id"
_STARTED_FIELD = 19  # index of starttime (ticks since boot) among the fields of /proc/<pid>/stat after the name
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the kernel keeps POSIX shared memory
_EXTRACTED = re.compile(r"/tmp/python_env_\w{6}")  # noqa: S108 - hard-coded in the server, which ignores TMPDIR
_EXTRACTED_PARENT = Path("/tmp")  # noqa: S108
HOME_PREFIX = "envpack-verify-"
LOG = "log"
_OWNER, _GROUP = "owner", "group"
_UNKNOWN = "unknown"


def this_owner() -> str:
    """Identifier of this process: boot id, process-id namespace, process id and start time.

    Process ids are reused, and each container has its own.
    """
    pid = os.getpid()
    return f"{_boot_id()}/{_pid_namespace()}/{pid}/{_start_time(pid)}"


def owner_is_gone(owner: str) -> bool:
    """Whether the process with this identifier has ended; False if that cannot be determined."""
    parts = owner.split("/")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    boot, namespace, pid, start_time = parts
    this_boot = _boot_id()
    if boot != this_boot:
        return _UNKNOWN not in (boot, this_boot)
    started = _start_time(int(pid))
    return namespace == _pid_namespace() and started != start_time and _UNKNOWN not in (started, start_time)


def _boot_id() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return _UNKNOWN


def _pid_namespace() -> str:
    try:
        return Path("/proc/self/ns/pid").readlink().name
    except OSError:
        return _UNKNOWN


def _start_time(pid: int) -> str:
    """When a process started; ``""`` if there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    except OSError:
        return _UNKNOWN
    fields = text[text.rfind(")") + 1 :].split()
    return next(iter(fields[_STARTED_FIELD:]), _UNKNOWN)


def extracted_folders() -> frozenset[Path]:
    """The folders in which Triton servers of this machine keep extracted environments."""
    return frozenset(_EXTRACTED_PARENT.glob("python_env_??????"))


def shared_memory_named(prefix: str) -> tuple[str, ...]:
    """Names of the POSIX shared-memory regions that start with ``prefix``."""
    return tuple(sorted(region.name for region in _SHARED_MEMORY.glob(f"{prefix}*")))


def remove_leftovers(
    *, prefix: str, group: int | None, log: str, before: frozenset[Path], crashed: bool
) -> tuple[str, ...]:
    """Remove what a server that has ended left behind.

    Args:
        prefix: prefix of the names of its shared-memory regions, unique to the server.
        group: its process group; None if unknown, or if another process can have the number now.
        log: its complete output, which names the folders of extracted environments.
        before: result of `extracted_folders` before the server was started.
        crashed: whether its exit status was not 0. A server that ends normally removes its own folder, so an empty
            folder that the log does not name then belongs to another server.

    Returns:
        One phrase for each leftover.

    """
    members = procfs.group_members(group) if group is not None else ()
    found = [f"process {pid} ({' '.join(procfs.command_line(pid))[:120]})" for pid in members]
    if group is not None and found:
        _end_group(group)
    for name in shared_memory_named(prefix):
        found.append(f"shared memory {_SHARED_MEMORY / name}")
        (_SHARED_MEMORY / name).unlink(missing_ok=True)
    for folder in sorted(extracted_folders() - before):
        if str(folder) in set(_EXTRACTED.findall(log)):
            found.append(f"extracted environment {folder}")
            shutil.rmtree(folder, ignore_errors=True)
        elif crashed and not procfs.programs_named("tritonserver"):
            with contextlib.suppress(OSError):  # empty, and no server is running that could own it
                folder.rmdir()
                found.append(f"folder {folder}")
    return tuple(found)


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    until = time.monotonic() + 2
    while procfs.group_members(group) and time.monotonic() < until:
        time.sleep(0.02)


def new_home() -> Path:
    """Create a temporary folder for one server and record this process as its owner."""
    home = Path(tempfile.mkdtemp(prefix=HOME_PREFIX))
    (home / _OWNER).write_text(this_owner(), encoding="utf-8")
    return home


@contextlib.contextmanager
def temporary_home() -> Iterator[Path]:
    """A folder from `new_home` that is removed at the end of the block."""
    home = new_home()
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def region_prefix(home: Path) -> str:
    """Prefix of the shared-memory regions of the server with this folder."""
    return f"envpack_{home.name.removeprefix(HOME_PREFIX)}_"


def record_group(home: Path, group: int) -> None:
    """Record the process group of the server with this folder."""
    (home / _GROUP).write_text(str(group), encoding="utf-8")


def release_home(home: Path) -> None:
    """Remove the owner of a server's folder, so that no later run stops the server."""
    (home / _OWNER).unlink()


def remove_stale_homes() -> tuple[str, ...]:
    """Stop servers whose envpack process has ended and remove their leftovers; one phrase for each leftover."""
    found: list[str] = []
    for home in sorted(Path(tempfile.gettempdir()).glob(f"{HOME_PREFIX}*")):
        with contextlib.suppress(OSError, ValueError):  # another run may be removing the same folder
            if _is_ours(home) and owner_is_gone((home / _OWNER).read_text(encoding="utf-8")):
                found += _remove(home)
    return tuple(found)


def _is_ours(home: Path) -> bool:
    """Whether this user owns the folder; in a world-writable parent the name alone proves nothing."""
    return home.is_dir() and not home.is_symlink() and home.stat().st_uid == os.getuid()


def _remove(home: Path) -> tuple[str, ...]:
    group = _group_of(home)
    if group is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    found = remove_leftovers(
        prefix=region_prefix(home), group=group, log=_text(home / LOG), before=frozenset(), crashed=False
    )
    shutil.rmtree(home, ignore_errors=True)
    return (*found, f"folder {home}")


def _group_of(home: Path) -> int | None:
    """The recorded process group of the server with this folder.

    None if none was recorded, as in a container, and if another process has the number now: a server's command line
    names its folder.
    """
    noted = _text(home / _GROUP)
    if not noted.isdigit() or int(noted) <= 1:  # 0 is our own group, and 1 is every process
        return None
    return int(noted) if any(str(home) in argument for argument in procfs.command_line(int(noted))) else None


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
