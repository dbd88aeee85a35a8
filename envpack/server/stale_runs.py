"""Cleans up after servers: what one leaves behind, and runs of envpack that were killed."""

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

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STARTED_FIELD = 19  # of /proc/<pid>/stat, counted behind the name: when the process started, in ticks since boot


def this_owner() -> str:
    """Give this process as one word: machine start, space of process ids, process id and its start.

    Process ids are used again, and each container counts its own.
    """
    pid = os.getpid()
    return f"{_boot()}/{_space()}/{pid}/{_started(pid)}"


def owner_is_gone(owner: str) -> bool:
    """Whether the process that `this_owner` described is not there any more; False for what cannot be told."""
    parts = owner.split("/")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    boot, space, pid, started = parts
    return boot != _boot() or (space == _space() and _started(int(pid)) != started)


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _space() -> str:
    try:
        return Path("/proc/self/ns/pid").readlink().name
    except OSError:
        return "unknown"


def _started(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text[text.rfind(")") + 1 :].split()
    return fields[_STARTED_FIELD] if len(fields) > _STARTED_FIELD else ""


_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the kernel keeps POSIX shared memory
_EXTRACTED = re.compile(r"/tmp/python_env_\w{6}")  # noqa: S108 - fixed by the server, TMPDIR is not honoured
_EXTRACTED_PARENT = Path("/tmp")  # noqa: S108


def extracted_folders() -> frozenset[Path]:
    """The folders that Triton servers on this machine keep extracted environments in."""
    return frozenset(_EXTRACTED_PARENT.glob("python_env_??????"))


def shared_memory_named(prefix: str) -> tuple[str, ...]:
    """Names of the regions of POSIX shared memory that begin with ``prefix``."""
    return tuple(sorted(region.name for region in _SHARED_MEMORY.glob(f"{prefix}*")))


def remove_leftovers(
    *, prefix: str, group: int | None, log: str, before: frozenset[Path], crashed: bool
) -> tuple[str, ...]:
    """Remove what one server, which has ended, left behind.

    Args:
        prefix: start of the names of its shared-memory regions, private to it.
        group: its process group; None if that is not known, or may be another's by now.
        log: all that it wrote; it names the folders that it extracted environments to.
        before: what `extracted_folders` gave before it started.
        crashed: whether it ended in another way than with exit status 0. One that ends well takes its own folder along,
            so an empty one that nobody names is that of a server which was there at the same time.

    Returns:
        One phrase for each thing that was found.

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
            with contextlib.suppress(OSError):  # empty and nobody else's: another server would still be running
                folder.rmdir()
                found.append(f"folder {folder}")
    return tuple(found)


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    until = time.monotonic() + 2
    while procfs.group_members(group) and time.monotonic() < until:
        time.sleep(0.02)


HOME_PREFIX = "envpack-verify-"
LOG = "log"
_OWNER, _GROUP = "owner", "group"


def new_home() -> Path:
    """A folder for one server, marked as this process's."""
    home = Path(tempfile.mkdtemp(prefix=HOME_PREFIX))
    (home / _OWNER).write_text(this_owner(), encoding="utf-8")
    return home


@contextlib.contextmanager
def temporary_home() -> Iterator[Path]:
    """A folder as `new_home` makes it, for the time of the block."""
    home = new_home()
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def region_prefix(home: Path) -> str:
    """Start of the names of the shared-memory regions of the server that has this folder."""
    return f"envpack_{home.name.removeprefix(HOME_PREFIX)}_"


def record_group(home: Path, group: int) -> None:
    """Note the process group of the server that has this folder."""
    (home / _GROUP).write_text(str(group), encoding="utf-8")


def release_home(home: Path) -> None:
    """Let the server that has this folder live on: no later run will clean it up."""
    (home / _OWNER).unlink()


def remove_stale_homes() -> tuple[str, ...]:
    """Stop the servers whose envpack is gone, and remove what they have left; one phrase for each thing."""
    found: list[str] = []
    for home in sorted(Path(tempfile.gettempdir()).glob(f"{HOME_PREFIX}*")):
        with contextlib.suppress(OSError, ValueError):  # another run may be cleaning up the same
            if _is_ours(home) and owner_is_gone((home / _OWNER).read_text(encoding="utf-8")):
                found += _remove(home)
    return tuple(found)


def _is_ours(home: Path) -> bool:
    """Whether this user made it: in a folder that everybody can write to, names prove nothing."""
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
    """The process group of the server that has this folder.

    None if none was noted, as in a container, and if the number is another's by now: only what was started with this
    folder is ours.
    """
    noted = _text(home / _GROUP)
    if not noted.isdigit() or int(noted) <= 1:  # 0 would be our own group, and 1 every process
        return None
    return int(noted) if any(str(home) in argument for argument in procfs.command_line(int(noted))) else None


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
