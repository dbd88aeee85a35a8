"""The interface of servers and runtimes that verification uses; `process` and `container` implement it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from envpack.inspection.facts import Host
from envpack.support.errors import Finding


@dataclass(frozen=True)
class Process:
    """A process that the server, or a child of the server, has started."""

    pid: int  # process id, in the process-id namespace of the server
    name: str  # short name of the program (the kernel truncates it to 15 characters)
    dead: bool  # the process has ended and its exit status has not been collected (a zombie)
    arguments: tuple[str, ...]  # command line; empty for a zombie
    status: int = 0  # wait status of a dead process; 0 also if unknown
    parent: int = 0  # process id of its parent, 0 if unknown


@dataclass(frozen=True)
class StopResult:
    """How a server ended."""

    exit_code: int  # exit status; a negative value is the number of the signal that ended the server
    forced: bool  # the server was killed, because it did not end in time or a load hung
    # What the server left behind (shared memory, folders, processes); all of it has been removed.
    leftovers: tuple[str, ...]
    seconds: float  # duration of the stop


class Server(Protocol):
    """A running server."""

    poll_seconds: float  # interval in seconds at which to read its processes
    kept: bool  # whether the server continues to run after the block that started it

    @property
    def url(self) -> str:
        """Address of the HTTP endpoint, without a trailing slash."""

    def log(self, since: int = 0, until: int | None = None) -> str:
        """The output between two positions in bytes; of more than 4 MiB, the beginning and the end."""

    def log_size(self) -> int:
        """How much was output so far, in bytes."""

    def ended(self) -> bool:
        """Whether the server process has ended."""

    def children(self, of: int | None = None) -> tuple[Process, ...]:
        """The children of the server, or of its child ``of``, in the process table, with zombies."""

    def watched(self, pid: int) -> tuple[Process, ...]:
        """The processes, with zombies, of which a child has a descriptor (pidfd); they need not be its descendants."""

    def orphans(self) -> tuple[Process, ...]:
        """Living processes of models that are no longer descendants of the server, because their parents ended."""

    def mapped_files(self, pid: int) -> tuple[str, ...]:
        """Paths of the files that a child has mapped; empty if its memory map cannot be read."""

    def written_files(self, pid: int) -> tuple[str, ...]:
        """Paths of the files that a child has open for writing; empty if they cannot be read, and for a container."""

    def executable(self, pid: int) -> str:
        """Path of the program that a child runs; empty if it cannot be read."""

    def variables(self, pid: int) -> Mapping[str, str]:
        """Environment variables that a child was started with; empty if they cannot be read."""

    def memory_bytes(self, pid: int) -> int:
        """Memory of a process in bytes, with its share of what it shares with others (PSS); 0 if it cannot be read."""

    def at_process_limit(self) -> bool:
        """Whether its user or control group has as many processes and threads as it may have; False for a container."""

    def abort(self, pid: int) -> None:
        """Send SIGABRT to a process; does nothing if the process has ended."""

    def list_folder(self, folder: str) -> tuple[str, ...]:
        """Names in a folder on the server's file system; empty if the folder cannot be read."""

    def unreadable(self, places: Sequence[str]) -> str:
        """The first of these paths on its file system that the server's user cannot read, ``""`` if it can read all."""

    def read_text(self, file: str) -> str:
        """Content of a small text file on the server's file system; empty if it cannot be read."""

    def shared_memory(self) -> tuple[str, ...]:
        """Names of the shared-memory regions that the server and its stubs use or have left behind."""

    def server_path(self, path: Path) -> str:
        """Path on the server's file system of a file or folder of this machine, symbolic links resolved."""

    def host_path(self, place: str) -> Path | None:
        """Path on this machine of a file on the server's file system, None if the file exists only there."""

    def keep(self) -> str:
        """Leave the server running after the block that started it; returns how to reach and how to stop it."""

    def stop(self, *, force: bool = False) -> StopResult:
        """Stop the server, and remove what it left behind; further calls return the first result."""


class Runtime(Protocol):
    """A way to run a server."""

    @property
    def name(self) -> str:
        """``"process"``, ``"docker"`` or ``"podman"``."""

    @property
    def image(self) -> str:
        """The container image, ``""`` without one."""

    @property
    def instead_of(self) -> Finding | None:
        """Why this server was taken and no container; None if it was the first choice."""

    @property
    def release(self) -> str:
        """Name of the Triton release that it runs, ``""`` if unknown."""

    @property
    def default_stub(self) -> Path | None:
        """The stub of models without a stub of their own, None if there is none or it cannot be read from here."""

    @property
    def host(self) -> Host:
        """The system on which the server runs."""

    def start(self, repository: Path, extra_repository: Path | None = None) -> AbstractContextManager[Server]:
        """Start a server with no model loaded; leaving the block stops it."""
