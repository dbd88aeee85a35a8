"""Looks into a container's /proc with nothing but bash: small images of Triton have no ps, and no Python."""

from __future__ import annotations

from collections.abc import Callable

from envpack.server.interface import Process
from envpack.server.procfs import ended_with, paths_in_maps, split_stat, split_variables

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


class ContainerLook:
    """Answers what `envpack.server.interface.Server` is asked about processes and files.

    Args:
        run: runs a bash script, with one argument, in the container; gives its standard output, see `ContainerShell`.

    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def children(self, of: int | None) -> tuple[Process, ...]:
        return read_processes(self._text(_PROCESSES, ""), of)

    def mapped_files(self, pid: int) -> tuple[str, ...]:
        return paths_in_maps(self.text_of(f"/proc/{pid}/maps"))

    def executable(self, pid: int) -> str:
        return self._text(_LINK, f"/proc/{pid}/exe").rstrip("\n")

    def variables(self, pid: int) -> dict[str, str]:
        return split_variables(self._run(_VARIABLES, f"/proc/{pid}/environ"))

    def resident_bytes(self, pid: int) -> int:
        fields = self.text_of(f"/proc/{pid}/statm").split()
        return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else 0

    def text_of(self, file: str) -> str:
        return self._text(_TEXT, file)

    def abort(self, pid: int) -> None:
        self._run(_ABORT, str(pid))

    def names_in(self, folder: str) -> tuple[str, ...]:
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
