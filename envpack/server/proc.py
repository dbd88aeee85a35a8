"""Reads Linux's /proc of this machine.

What a process that has ended or that belongs to another user has there is empty. `supervisor_child` imports this
module, so it imports the standard library only, and of that only what loads fast.
"""

from __future__ import annotations

import os

PROC = "/proc"
# Indexes among the fields of /proc/<pid>/stat that follow the name.
STATE, PARENT, STARTED, EXIT_CODE = 0, 1, 19, 49  # the start in ticks since boot; the last for own processes only
UNKNOWN = "unknown"
_LONGEST = 120  # characters of a command line


def read(pid: int | str, file: str = "") -> bytes:
    try:
        with open(f"{PROC}/{pid}/{file}" if file else f"{PROC}/{pid}", "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def text(pid: int | str, file: str = "") -> str:
    return read(pid, file).decode("utf-8", "replace")


def names(pid: int, folder: str) -> list[str]:
    try:
        return os.listdir(f"{PROC}/{pid}/{folder}")
    except OSError:
        return []


def link(pid: int | str, name: str) -> str:
    try:
        return os.readlink(f"{PROC}/{pid}/{name}")
    except OSError:
        return ""


def all_pids() -> list[int]:
    """Ids of all processes, zombies included."""
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]


def split_stat(line: str) -> tuple[str, list[str]]:
    """Split ``/proc/<pid>/stat`` into the name and the fields after it; the name can contain parentheses itself."""
    opening, closing = line.find("("), line.rfind(")")
    return line[opening + 1 : closing], line[closing + 1 :].split()


def fields_of(pid: int) -> list[str]:
    return split_stat(text(pid, "stat"))[1]


def is_dead(fields: list[str]) -> bool:
    return fields[STATE] in {"Z", "X"}


def children() -> list[int]:
    """Process ids of the living children of this process."""
    return [pid for pid, parent in _parents().items() if parent == os.getpid()]


def descendants(of: int = 0) -> list[int]:
    """Process ids of everything alive that a process, by default this one, and its descendants have started."""
    parents = _parents()
    found: list[int] = []
    level = {of or os.getpid()}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found += sorted(level)
    return found


def _parents() -> dict[int, int]:
    """The parent of each process that is no zombie."""
    fields = ((pid, fields_of(pid)) for pid in all_pids())
    return {pid: int(words[PARENT]) for pid, words in fields if words and not is_dead(words)}


def phrase(pid: int) -> str:
    words = text(pid, "cmdline").replace("\0", " ").strip() or text(pid, "comm").strip()
    fields, uptime = fields_of(pid), text("uptime").split()
    if len(fields) <= STARTED or not uptime:
        return f"process {pid} ({words[:_LONGEST]})"
    age = float(uptime[0]) - int(fields[STARTED]) / os.sysconf("SC_CLK_TCK")
    return f"process {pid} ({words[:_LONGEST]}), {max(age, 0):.0f} s old"


def start_time(pid: int) -> str:
    """When a living process started, in ticks since boot; ``""`` if there is none, `UNKNOWN` if that cannot be read.

    A process that has ended remains as a zombie until its parent reads the exit status; PID 1 of many containers never
    does.
    """
    if not os.path.lexists(f"{PROC}/{pid}"):
        return ""
    fields = fields_of(pid)
    return "" if fields and is_dead(fields) else next(iter(fields[STARTED:]), UNKNOWN)


def variables(pid: int) -> dict[str, str]:
    return split_variables(read(pid, "environ"))


def split_variables(raw: bytes) -> dict[str, str]:
    entries = (entry.decode("utf-8", "replace").partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in entries}


def open_files(pid: int) -> list[str]:
    """Paths of a process's open files and of its working folder; that of a removed one ends with " (deleted)"."""
    targets = (link(pid, name) for name in ("cwd", *(f"fd/{name}" for name in names(pid, "fd"))))
    return [target for target in targets if target]


def written_files(pid: int) -> tuple[str, ...]:
    return tuple(
        target
        for name in names(pid, "fd")
        if _ACCESS & _flags(text(pid, f"fdinfo/{name}")) and (target := link(pid, f"fd/{name}")).startswith("/")
    )


_ACCESS = os.O_WRONLY | os.O_RDWR


def _flags(content: str) -> int:
    found = (line.split()[1] for line in content.splitlines() if line.startswith("flags:"))
    return int(next(found, "0"), 8)
