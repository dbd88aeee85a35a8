"""Processes as /proc has them, on this machine and through a shell in a container.

Information about a process that has ended, or that belongs to another user, is empty.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from envpack.server import proc
from envpack.server.interface import Process
from envpack.server.proc import EXIT_CODE, PARENT, is_dead, read, split_stat, split_variables, text

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
# In a shell of its own, since it changes how words are split.
_FIRST_UNREADABLE = r"""
(set -f; IFS=$'\n'; for file in $1; do
  [[ -r $file && (! -d $file || -x $file) ]] || { printf '%s' "$file"; break; }
done)
"""
_READ_LINK = 'readlink "$1"'
_ABORT = 'kill -ABRT "$1"'
_WATCHED = re.compile(r"^Pid:\t(-?\d{1,9})$", re.MULTILINE)
_PROPORTIONAL = re.compile(r"^Pss:\s+(\d{1,12}) kB$", re.MULTILINE)
_MOST_PROCESSES = re.compile(r"^Max processes +(\d{1,9}) ", re.MULTILINE)
_USER = re.compile(r"^Uid:\t(\d{1,10})\t", re.MULTILINE)
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_PIDS_GROUP = re.compile(r"^\d+:(pids|):/(.*)$", re.MULTILINE)
_THREADS = re.compile(r"^Threads:\t(\d{1,9})$", re.MULTILINE)
_LISTENING = "0A"  # state in /proc/<pid>/net/tcp
Run = Callable[[str, str], bytes]


def children_of(parent: int) -> tuple[Process, ...]:
    """The direct children of a process, zombies included, by process id."""
    found = (_process(pid, parent) for pid in sorted(proc.all_pids()))
    return tuple(process for process in found if process)


def watched_by(pid: int) -> tuple[Process, ...]:
    """The processes of which a process has a descriptor (pidfd), zombies included, by process id."""
    texts = (text(pid, f"fdinfo/{name}") for name in proc.names(pid, "fdinfo"))
    found = {watched for content in texts for watched in pids_in(content)}
    return tuple(process for process in map(_process, sorted(found)) if process)


def pids_in(content: str) -> list[int]:
    """The process ids in the text of ``/proc/<pid>/fdinfo/<number>``; a process that is gone has none."""
    pids = (int(match) for match in _WATCHED.findall(content))
    return [pid for pid in pids if pid > 0]


def _process(pid: int, parent: int | None = None) -> Process | None:
    """An entry of the process table; None if it does not exist, or has another parent than the given one."""
    name, fields = split_stat(text(pid, "stat"))
    if len(fields) < 2 or parent not in (None, int(fields[PARENT])):
        return None
    return Process(pid, name, is_dead(fields), command_line(pid), ended_with(fields), int(fields[PARENT]))


def command_line(pid: int) -> tuple[str, ...]:
    return tuple(text(pid, "cmdline").split("\0")[:-1])


def mapped_files(pid: int) -> tuple[str, ...]:
    """Absolute paths of all files that a process has mapped, without duplicates."""
    return paths_in_maps(text(pid, "maps"))


def paths_in_maps(content: str) -> tuple[str, ...]:
    """Absolute paths in the text of ``/proc/<pid>/maps``, without duplicates."""
    return tuple(dict.fromkeys(line[line.index("/") :] for line in content.splitlines() if "/" in line))


def memory_bytes(pid: int) -> int:
    return proportional_bytes(text(pid, "smaps_rollup"))


def proportional_bytes(content: str) -> int:
    """The proportional memory in the text of ``/proc/<pid>/smaps_rollup`` in bytes."""
    found = _PROPORTIONAL.search(content)
    return int(found[1]) << 10 if found else 0


def at_process_limit(pid: int) -> bool:
    """Whether a process can start no other and no thread: its user or a control group has as many as it may have."""
    if any(map(_is_full, _groups(pid))):
        return True
    most, user = _MOST_PROCESSES.search(text(pid, "limits")), _USER.search(text(pid, "status"))
    if most is None or user is None or user[1] == "0":  # root may have any number
        return False
    states = (text(other, "status") for other in proc.all_pids())
    counts = (_THREADS.search(state) for state in states if (owner := _USER.search(state)) and owner[1] == user[1])
    return sum(int(count[1]) for count in counts if count) >= int(most[1])


def _groups(pid: int) -> Iterator[Path]:
    """The control groups that limit how many processes a process and its relatives have, in cgroup v1 and v2."""
    for controller, path in _PIDS_GROUP.findall(text(pid, "cgroup")):
        yield from (_CONTROL_GROUPS / controller / group for group in (path, *PurePosixPath(path).parents))


def _is_full(group: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):  # "max" where there is no limit
        return int((group / "pids.current").read_text()) >= int((group / "pids.max").read_text())
    return False


def listens(pid: int, port: int) -> bool:
    sockets = {f"socket:[{inode}]" for inode, listening in _listening(pid) if listening == port}
    return any(proc.link(pid, f"fd/{name}") in sockets for name in proc.names(pid, "fd"))


def listening_ports(pid: int) -> frozenset[int]:
    return frozenset(port for port in {port for _, port in _listening(pid)} if listens(pid, port))


def _listening(pid: int) -> list[tuple[str, int]]:
    """Inode and port of each socket in the process's network that listens."""
    lines = (read(pid, "net/tcp") + read(pid, "net/tcp6")).decode().splitlines()
    table = [line.split() for line in lines]
    return [(fields[9], int(fields[1].rpartition(":")[2], 16)) for fields in table if fields[3] == _LISTENING]


def ended_with(fields: list[str]) -> int:
    """Wait status of a dead process from the fields of its stat; 0 if this user cannot read it."""
    return int(fields[EXIT_CODE]) if len(fields) > EXIT_CODE else 0


class ContainerProcfs:
    """Reads processes and files of a container with bash only: small Triton images have no ps and no Python."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def children(self, of: int | None = None) -> tuple[Process, ...]:
        return read_processes(self._text(_LIST_PROCESSES, ""), of)

    def watched(self, pid: int) -> tuple[Process, ...]:
        pids = pids_in(self._text(_READ_DESCRIPTORS, f"/proc/{pid}/fdinfo"))
        processes = all_processes(self._text(_LIST_PROCESSES, "")) if pids else ()
        return tuple(process for process in processes if process.pid in pids)

    def orphans(self) -> tuple[Process, ...]:
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

    def at_process_limit(self) -> bool:
        return False

    def abort(self, pid: int) -> None:
        self._run(_ABORT, str(pid))

    def list_folder(self, folder: str) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._text(_LIST_FOLDER, folder).split("\0") if name))

    def unreadable(self, places: Sequence[str]) -> str:
        return self._text(_FIRST_UNREADABLE, "\n".join(places))

    def _text(self, script: str, argument: str) -> str:
        return self._run(script, argument).decode("utf-8", "replace")


def read_processes(content: str, of: int | None) -> tuple[Process, ...]:
    """Parse the output of the process script: the children of the server, or of the process ``of``."""
    found = all_processes(content)
    parents = {process.pid for process in found if process.name == _SERVER} if of is None else {of}
    return tuple(process for process in found if process.parent in parents)


def all_processes(content: str) -> tuple[Process, ...]:
    """Parse the output of the process script, up to what it cannot have written: a process can write there, too."""
    found: dict[int, Process] = {}
    words = iter(content.split("\0")[:-1])
    with contextlib.suppress(ValueError):
        for stat in words:
            arguments = tuple(itertools.islice(words, int(next(words, "0"))))
            name, fields = split_stat(stat)
            pid = int(stat.partition(" ")[0])
            if len(fields) > 2:
                found[pid] = Process(pid, name, is_dead(fields), arguments, ended_with(fields), int(fields[PARENT]))
    return tuple(process for _, process in sorted(found.items()))
