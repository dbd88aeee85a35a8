"""Reads Linux's /proc, on this machine and through a shell in a container."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from envpack.server.interface import Process

_PROC = Path("/proc")
_EXIT_CODE = 49  # in the fields of stat, counted from the state


def children_of(parent: int) -> tuple[Process, ...]:
    """The direct children of a process, zombies included, by process id."""
    found = []
    for entry in sorted(_all_pids()):
        name, fields = _stat_fields(entry)
        if len(fields) > 2 and int(fields[1]) == parent:
            found.append(Process(entry, name, fields[0] in {"Z", "X"}, command_line(entry), ended_with(fields)))
    return tuple(found)


def group_members(group: int) -> tuple[int, ...]:
    """Living processes of a process group."""
    return tuple(pid for pid in sorted(_all_pids()) if _group(pid) == group and _status(pid)[1] not in {"Z", "X"})


def command_line(pid: int) -> tuple[str, ...]:
    """Arguments of a process, the program's name first."""
    raw = _read(pid, "cmdline")
    return tuple(part.decode("utf-8", "replace") for part in raw.split(b"\0")[:-1])


def mapped_files(pid: int) -> tuple[str, ...]:
    """Absolute paths of all files that a process has mapped, each once."""
    return paths_in_maps(_read(pid, "maps").decode("utf-8", "replace"))


def paths_in_maps(text: str) -> tuple[str, ...]:
    """Absolute paths in the text of ``/proc/<pid>/maps``, each once."""
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
    """The content of ``/proc/<pid>/environ`` by name."""
    entries = (entry.decode("utf-8", "replace").partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in entries}


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM, bytes."""
    fields = _read(pid, "statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def programs_named(name: str) -> tuple[int, ...]:
    """Living processes whose short name is ``name``."""
    return tuple(pid for pid in sorted(_all_pids()) if _status(pid)[:2] != (name, "Z") and _status(pid)[0] == name)


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _read(pid: int, file: str) -> bytes:
    try:
        return (_PROC / str(pid) / file).read_bytes()
    except OSError:
        return b""


def split_stat(text: str) -> tuple[str, list[str]]:
    """Of ``/proc/<pid>/stat``, the name and what stands after it; the name, in parentheses, may itself hold some."""
    opening, closing = text.find("("), text.rfind(")")
    return text[opening + 1 : closing], text[closing + 1 :].split()


def _stat_fields(pid: int) -> tuple[str, list[str]]:
    return split_stat(_read(pid, "stat").decode("utf-8", "replace"))


def ended_with(fields: list[str]) -> int:
    """The wait status of a process that has ended, by the fields of its stat; 0 if it is not ours to see."""
    return int(fields[_EXIT_CODE]) if len(fields) > _EXIT_CODE else 0


def _status(pid: int) -> tuple[str, str, int]:
    name, fields = _stat_fields(pid)
    return (name, fields[0], int(fields[1])) if len(fields) > 2 else ("", "", -1)


def _group(pid: int) -> int:
    _, fields = _stat_fields(pid)
    return int(fields[2]) if len(fields) > 2 else -1


_SERVER = "tritonserver"
_PROCESS, _PART = "\x1d", "\x1e"
# One process after the other: its stat, then its arguments. The shell's own read loses nothing but NUL bytes.
_PROCESSES = r"""
for folder in /proc/[0-9]*; do
  { read -r stat < "$folder/stat"; } 2>/dev/null || continue
  printf '\035%s' "$stat"
  { while IFS= read -r -d '' word; do printf '\036%s' "$word"; done < "$folder/cmdline"; } 2>/dev/null
done
"""
_TEXT = 'printf "%s" "$(<"$1")"'
_VARIABLES = r"""while IFS= read -r -d '' entry; do printf '%s\0' "$entry"; done < "$1" """
_NAMES = r"""shopt -s nullglob dotglob; for entry in "$1"/*; do printf '%s\0' "${entry##*/}"; done"""
_LINK = 'readlink "$1"'
_ABORT = 'kill -ABRT "$1"'
_PAGE_BYTES = 4096  # of resident sizes in /proc/<pid>/statm, on every platform that Triton is built for

Run = Callable[[str, str], bytes]


class ContainerProcfs:
    """Answers what `envpack.server.interface.Server` is asked about processes and files.

    Args:
        run: runs a bash script, with one argument, in the container; gives its standard output, see `ContainerShell`.

    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def children(self, of: int | None) -> tuple[Process, ...]:
        return read_processes(self._text(_PROCESSES, ""), of)

    def mapped_files(self, pid: int) -> tuple[str, ...]:
        return paths_in_maps(self.read_text(f"/proc/{pid}/maps"))

    def executable(self, pid: int) -> str:
        return self._text(_LINK, f"/proc/{pid}/exe").rstrip("\n")

    def variables(self, pid: int) -> dict[str, str]:
        return split_variables(self._run(_VARIABLES, f"/proc/{pid}/environ"))

    def resident_bytes(self, pid: int) -> int:
        fields = self.read_text(f"/proc/{pid}/statm").split()
        return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else 0

    def read_text(self, file: str) -> str:
        return self._text(_TEXT, file)

    def abort(self, pid: int) -> None:
        self._run(_ABORT, str(pid))

    def list_folder(self, folder: str) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._text(_NAMES, folder).split("\0") if name))

    def _text(self, script: str, argument: str) -> str:
        return self._run(script, argument).decode("utf-8", "replace")


def read_processes(text: str, of: int | None) -> tuple[Process, ...]:
    """The children of the server, or of the process ``of``, in what the script has printed."""
    found: dict[int, tuple[int, Process]] = {}
    for entry in text.split(_PROCESS)[1:]:
        stat, *arguments = entry.split(_PART)
        name, fields = split_stat(stat)
        pid = int(stat.partition(" ")[0])
        if len(fields) > 2:
            dead = fields[0] in {"Z", "X"}
            found[pid] = int(fields[1]), Process(pid, name, dead, tuple(arguments), ended_with(fields))
    parents = {pid for pid, (_, process) in found.items() if process.name == _SERVER} if of is None else {of}
    return tuple(process for _, (parent, process) in sorted(found.items()) if parent in parents)
