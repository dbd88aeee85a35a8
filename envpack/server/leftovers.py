"""Finds and removes what a server leaves behind when it does not end well."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from pathlib import Path

from envpack.server import procfs

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
