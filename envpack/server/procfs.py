"""Reads Linux's /proc, on this machine and through a shell in a container.

Information about a process that has ended, or that belongs to another user, is empty.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

from envpack.server.interface import Process

_PROC = Path("/proc")
_EXIT_CODE = 49  # index among the fields of /proc/<pid>/stat that follow the name; readable for own processes only
_SERVER = "tritonserver"
_INIT = 1  # process id
# For each process its stat, the number of its arguments, and these, each with a NUL byte behind it: a process chooses
# its name and its arguments, and a NUL byte is all that they cannot contain.
_LIST_PROCESSES = r"""
for folder in /proc/[0-9]*; do
  stat= words=()
  { IFS= read -r -d '' stat < "$folder/stat"; } 2>/dev/null
  [[ $stat ]] || continue
  { while IFS= read -r -d '' word; do words+=("$word"); done < "$folder/cmdline"; } 2>/dev/null
  printf '%s\0' "$stat" "${#words[@]}" "${words[@]}"
done
"""
_READ_DESCRIPTORS = r"""
for file in "$1"/*; do
  { while IFS= read -r line; do printf '%s\n' "$line"; done < "$file"; } 2>/dev/null
done
"""
_READ_TEXT = 'printf "%s" "$(<"$1")"'
_READ_VARIABLES = r"""while IFS= read -r -d '' entry; do printf '%s\0' "$entry"; done < "$1" """
_LIST_FOLDER = r"""shopt -s nullglob dotglob; for entry in "$1"/*; do printf '%s\0' "${entry##*/}"; done"""
_READ_LINK = 'readlink "$1"'
_ABORT = 'kill -ABRT "$1"'
_WATCHED = re.compile(r"^Pid:\t(-?\d{1,9})$", re.MULTILINE)
_PROPORTIONAL = re.compile(r"^Pss:\s+(\d{1,12}) kB$", re.MULTILINE)
_LISTENING = "0A"  # state in /proc/<pid>/net/tcp
Run = Callable[[str, str], bytes]


def children_of(parent: int) -> tuple[Process, ...]:
    """The direct children of a process, zombies included, by process id."""
    found = (_process(pid, parent) for pid in sorted(all_pids()))
    return tuple(process for process in found if process)


def watched_by(pid: int) -> tuple[Process, ...]:
    """The processes of which a process has a descriptor (pidfd), zombies included, by process id."""
    texts = (_read(pid, f"fdinfo/{name}").decode() for name in _names(pid, "fdinfo"))
    found = {watched for text in texts for watched in pids_in(text)}
    return tuple(process for process in map(_process, sorted(found)) if process)


def pids_in(text: str) -> list[int]:
    """The process ids in the text of ``/proc/<pid>/fdinfo/<number>``; a process that is gone has none."""
    pids = (int(match) for match in _WATCHED.findall(text))
    return [pid for pid in pids if pid > 0]


def _process(pid: int, parent: int | None = None) -> Process | None:
    """An entry of the process table; None if it does not exist, or has another parent than the given one."""
    name, fields = _stat_fields(pid)
    if len(fields) < 2 or parent not in (None, int(fields[1])):
        return None
    return Process(pid, name, fields[0] in {"Z", "X"}, command_line(pid), ended_with(fields), int(fields[1]))


def command_line(pid: int) -> tuple[str, ...]:
    """Command line of a process, the program first."""
    raw = _read(pid, "cmdline")
    return tuple(part.decode("utf-8", "replace") for part in raw.split(b"\0")[:-1])


def mapped_files(pid: int) -> tuple[str, ...]:
    """Absolute paths of all files that a process has mapped, without duplicates."""
    return paths_in_maps(_read(pid, "maps").decode("utf-8", "replace"))


def paths_in_maps(text: str) -> tuple[str, ...]:
    """Absolute paths in the text of ``/proc/<pid>/maps``, without duplicates."""
    return tuple(dict.fromkeys(line[line.index("/") :] for line in text.splitlines() if "/" in line))


def executable(pid: int) -> str:
    """Path of the program that a process runs."""
    try:
        return str((_PROC / str(pid) / "exe").readlink())
    except OSError:
        return ""


def variables(pid: int) -> dict[str, str]:
    """Environment variables that a process was started with."""
    return split_variables(_read(pid, "environ"))


def split_variables(raw: bytes) -> dict[str, str]:
    """Parse ``/proc/<pid>/environ``."""
    entries = (entry.decode("utf-8", "replace").partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in entries}


def memory_bytes(pid: int) -> int:
    """Memory of a process in bytes, with its share of what it shares with others."""
    return proportional_bytes(_read(pid, "smaps_rollup").decode())


def proportional_bytes(text: str) -> int:
    """The proportional memory in the text of ``/proc/<pid>/smaps_rollup`` in bytes."""
    found = _PROPORTIONAL.search(text)
    return int(found[1]) << 10 if found else 0


def listens(pid: int, port: int) -> bool:
    """Whether a process has a socket that listens on a TCP port."""
    sockets = set()
    for line in (_read(pid, "net/tcp") + _read(pid, "net/tcp6")).decode().splitlines():
        fields = line.split()
        if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            sockets.add(f"socket:[{fields[9]}]")
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if os.readlink(entry.path) in sockets:  # noqa: PTH115 - text is faster
                    return True
    return False


def listening_ports(pid: int) -> frozenset[int]:
    """The TCP ports on which a process listens."""
    lines = (_read(pid, "net/tcp") + _read(pid, "net/tcp6")).decode().splitlines()
    ports = {int(fields[1].rpartition(":")[2], 16) for fields in map(str.split, lines) if fields[3] == _LISTENING}
    return frozenset(port for port in ports if listens(pid, port))


def all_pids() -> list[int]:
    """Ids of all processes, zombies included."""
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _names(pid: int, folder: str) -> list[str]:
    try:
        return os.listdir(_PROC / str(pid) / folder)  # noqa: PTH208 - only names are needed
    except OSError:
        return []


def _read(pid: int, file: str) -> bytes:
    try:
        return (_PROC / str(pid) / file).read_bytes()
    except OSError:
        return b""


def split_stat(text: str) -> tuple[str, list[str]]:
    """Split ``/proc/<pid>/stat`` into the name and the fields after it; the name can contain parentheses itself."""
    opening, closing = text.find("("), text.rfind(")")
    return text[opening + 1 : closing], text[closing + 1 :].split()


def _stat_fields(pid: int) -> tuple[str, list[str]]:
    return split_stat(_read(pid, "stat").decode("utf-8", "replace"))


def ended_with(fields: list[str]) -> int:
    """Wait status of a dead process from the fields of its stat; 0 if this user cannot read it."""
    return int(fields[_EXIT_CODE]) if len(fields) > _EXIT_CODE else 0


class ContainerProcfs:
    """Reads processes and files of a container with bash only: small Triton images have no ps and no Python."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def children(self, of: int | None) -> tuple[Process, ...]:
        return read_processes(self._text(_LIST_PROCESSES, ""), of)

    def watched(self, pid: int) -> tuple[Process, ...]:
        pids = pids_in(self._text(_READ_DESCRIPTORS, f"/proc/{pid}/fdinfo"))
        processes = all_processes(self._text(_LIST_PROCESSES, "")) if pids else ()
        return tuple(process for process in processes if process.pid in pids)

    def orphans(self) -> tuple[Process, ...]:
        """The living children of the container's init, other than the server."""
        children = read_processes(self._text(_LIST_PROCESSES, ""), _INIT)
        return tuple(child for child in children if child.name != _SERVER and not child.dead)

    def mapped_files(self, pid: int) -> tuple[str, ...]:
        return paths_in_maps(self.read_text(f"/proc/{pid}/maps"))

    def executable(self, pid: int) -> str:
        return self._text(_READ_LINK, f"/proc/{pid}/exe").rstrip("\n")

    def variables(self, pid: int) -> dict[str, str]:
        return split_variables(self._run(_READ_VARIABLES, f"/proc/{pid}/environ"))

    def memory_bytes(self, pid: int) -> int:
        return proportional_bytes(self.read_text(f"/proc/{pid}/smaps_rollup"))

    def read_text(self, file: str) -> str:
        return self._text(_READ_TEXT, file)

    def abort(self, pid: int) -> None:
        self._run(_ABORT, str(pid))

    def list_folder(self, folder: str) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._text(_LIST_FOLDER, folder).split("\0") if name))

    def _text(self, script: str, argument: str) -> str:
        return self._run(script, argument).decode("utf-8", "replace")


def read_processes(text: str, of: int | None) -> tuple[Process, ...]:
    """Parse the output of the process script: the children of the server, or of the process ``of``."""
    found = all_processes(text)
    parents = {process.pid for process in found if process.name == _SERVER} if of is None else {of}
    return tuple(process for process in found if process.parent in parents)


def all_processes(text: str) -> tuple[Process, ...]:
    """Parse the output of the process script, up to what it cannot have written: a process can write there, too."""
    found: dict[int, Process] = {}
    words = iter(text.split("\0")[:-1])
    with contextlib.suppress(ValueError):
        for stat in words:
            arguments = tuple(itertools.islice(words, int(next(words, "0"))))
            name, fields = split_stat(stat)
            pid = int(stat.partition(" ")[0])
            if len(fields) > 2:
                dead = fields[0] in {"Z", "X"}
                found[pid] = Process(pid, name, dead, arguments, ended_with(fields), int(fields[1]))
    return tuple(process for _, process in sorted(found.items()))
