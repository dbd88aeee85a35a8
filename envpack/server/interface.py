"""What verification asks of a place to run a server in; `process` and `container` are the two there are."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from envpack.preflight import Host


@dataclass(frozen=True)
class Process:
    """A process that the server, or a child of it, has started.

    Attributes:
        pid: process id, valid where `Server` reads ``/proc``.
        name: short name of the program (the kernel cuts it to 15 characters).
        dead: it has ended and nobody has asked for its exit status (a zombie).
        arguments: its command line; empty for a zombie.
        status: how a dead one ended, as ``wait`` gives it; 0 also if that is not known.

    """

    pid: int
    name: str
    dead: bool
    arguments: tuple[str, ...]
    status: int = 0


@dataclass(frozen=True)
class StopResult:
    """How a server ended.

    Attributes:
        exit_code: its exit status; negative is the number of the signal that ended it.
        forced: it had to be killed, or was told to end at once because a load hangs.
        leftovers: what it left behind (shared memory, folders, processes), all removed by now.
        seconds: how long the stop took.

    """

    exit_code: int
    forced: bool
    leftovers: tuple[str, ...]
    seconds: float


class Server(Protocol):
    """A running server.

    Attributes:
        poll_seconds: how often it is worth looking at its processes; a look into a container starts one there.
        kept: whether it lives on after the block that started it.

    """

    poll_seconds: float
    kept: bool

    @property
    def url(self) -> str:
        """Where it answers HTTP, without a slash at the end."""

    def log(self) -> str:
        """All that it and its stubs have written so far."""

    def ended(self) -> bool:
        """Whether the server process is gone."""

    def children(self, of: int | None = None) -> tuple[Process, ...]:
        """The processes that it has started, or that its child ``of`` has, and that are still in the process table."""

    def mapped_files(self, pid: int) -> tuple[str, ...]:
        """Paths of the files in the memory of a child; empty if that cannot be read."""

    def executable(self, pid: int) -> str:
        """Path of the program that a child runs; empty if that cannot be read."""

    def variables(self, pid: int) -> Mapping[str, str]:
        """The environment variables that a child was started with; empty if they cannot be read."""

    def resident_bytes(self, pid: int) -> int:
        """Memory of a child that is in RAM, bytes; 0 if that cannot be read."""

    def abort(self, pid: int) -> None:
        """Send a process SIGABRT; one that has gone is left alone."""

    def list_folder(self, folder: str) -> tuple[str, ...]:
        """Names in a folder as the server sees it; none if it cannot be read."""

    def read_text(self, file: str) -> str:
        """A small text file as the server sees it; nothing if it cannot be read."""

    def shared_memory(self) -> tuple[str, ...]:
        """Names of the shared-memory regions that it and its stubs have, or have left behind."""

    def server_path(self, path: Path) -> str:
        """Where a file or folder of the model repository or an environment is for the server, links resolved."""

    def host_path(self, place: str) -> Path | None:
        """The file of this machine that the server sees at ``place``, None if it is the server's alone."""

    def keep(self) -> str:
        """Let it live on after the block that started it; returns how to reach it and how to stop it."""

    def stop(self, *, force: bool = False) -> StopResult:
        """End it, wait, and remove what it left behind; ``force`` skips the polite request.

        Calling it again gives the first answer.
        """


class Runtime(Protocol):
    """A place that can run a server."""

    @property
    def name(self) -> str:
        """``"process"``, ``"docker"`` or ``"podman"``."""

    @property
    def image(self) -> str:
        """The container image, ``""`` without one."""

    @property
    def release(self) -> str:
        """Name of the Triton release that it runs, ``""`` if unknown."""

    @property
    def default_stub(self) -> Path | None:
        """The stub that serves models without one of their own, None if there is none or it cannot be read here."""

    @property
    def host(self) -> Host:
        """The system that the server runs in."""

    def start(self, repository: Path, further: Path | None = None) -> AbstractContextManager[Server]:
        """Start a server on a model repository, with no model loaded; leaving the block always stops it.

        Args:
            repository: the model repository.
            further: one more, which is not the user's.

        Raises:
            ServerError: kinds ``port-taken`` and ``server-failed``; in containers also ``image-missing``,
                ``docker-failed`` and ``no-gpu``.

        """
