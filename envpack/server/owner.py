"""Who started a server, so that a later run can tell what nobody waits for any more."""

from __future__ import annotations

import os
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STARTED_FIELD = 19  # of /proc/<pid>/stat, counted behind the name: when the process started, in ticks since boot


def this_owner() -> str:
    """Give this process as one word: machine start, space of process ids, process id and its start.

    Process ids are used again, and each container counts its own.
    """
    pid = os.getpid()
    return f"{_boot()}/{_space()}/{pid}/{_started(pid)}"


def is_gone(owner: str) -> bool:
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
