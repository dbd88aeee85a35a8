"""Reads Linux's /proc, on this machine and through a shell in a container.

Information about a process that has ended, or that belongs to another user, is empty.
"""

from __future__ import annotations

import contextlib
import itertools
import os
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
_READ_TEXT = 'printf "%s" "$(<"$1")"'
_READ_VARIABLES = r"""while IFS= read -r -d '' entry; do printf '%s\0' "$entry"; done < "$1" """
_LIST_FOLDER = r"""shopt -s nullglob dotglob; for entry in "$1"/*; do printf '%s\0' "${entry##*/}"; done"""
_READ_LINK = 'readlink "$1"'
_ABORT = 'kill -ABRT "$1"'
_LISTENING = "0A"  # state in /proc/<pid>/net/tcp
_PAGE_BYTES = 4096  # unit of resident sizes in /proc/<pid>/statm, on all platforms of Triton
Run = Callable[[str, str], bytes]


def children_of(parent: int) -> tuple[Process, ...]:
    """The direct children of a process, zombies included, by process id."""
    found = []
    for entry in sorted(all_pids()):
        name, fields = _stat_fields(entry)
        if len(fields) > 2 and int(fields[1]) == parent:
            found.append(Process(entry, name, fields[0] in {"Z", "X"}, command_line(entry), ended_with(fields)))
    return tuple(found)


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


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes."""
    fields = _read(pid, "statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


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


def all_pids() -> list[int]:
    """Ids of all processes, zombies included."""
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


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
    """Reads processes and files of a container with bash only: small Triton images have no ps and no Python.

    Args:
        run: runs a bash script with one argument in the container and returns its standard output, see
            `ContainerShell`.

    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def children(self, of: int | None) -> tuple[Process, ...]:
        return read_processes(self._text(_LIST_PROCESSES, ""), of)

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

    def resident_bytes(self, pid: int) -> int:
        fields = self.read_text(f"/proc/{pid}/statm").split()
        return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else 0

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
    found: dict[int, tuple[int, Process]] = {}
    words = iter(text.split("\0")[:-1])
    for stat in words:
        arguments = tuple(itertools.islice(words, int(next(words, "0"))))
        name, fields = split_stat(stat)
        pid = int(stat.partition(" ")[0])
        if len(fields) > 2:
            dead = fields[0] in {"Z", "X"}
            found[pid] = int(fields[1]), Process(pid, name, dead, arguments, ended_with(fields))
    parents = {pid for pid, (_, process) in found.items() if process.name == _SERVER} if of is None else {of}
    return tuple(process for _, (parent, process) in sorted(found.items()) if parent in parents)
