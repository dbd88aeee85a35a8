"""Runs a server of this machine as an isolated child process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from envpack.inspection.facts import Host, this_host
from envpack.server import proc, procfs
from envpack.server.interface import Process, StopResult
from envpack.server.kserve import Client
from envpack.server.launch import (
    STOP_SECONDS,
    ServerInstallation,
    default_stub,
    library_path,
    link_backends,
    port_taken,
    refuse_unsafe_folder,
    server_command,
    write_user_site_probe,
)
from envpack.server.log import LIMIT, NO_MORE, excerpt, files_limit, start_error
from envpack.server.stale_runs import (
    LOG,
    VARIABLE,
    new_home,
    region_prefix,
    release_home,
    remove_home,
    remove_leftovers,
    remove_stale_homes,
    shared_memory_named,
)
from envpack.server.supervisor import Supervisor
from envpack.support.errors import Finding, ServerError, require_proc
from envpack.support.placed_files import STUB_NAME

_POLL_SECONDS = 0.02
_READ = (os.R_OK, os.R_OK | os.X_OK)  # of a file, and of a folder
_KILL_SECONDS = 10.0
_ATTEMPTS = 5
_TAKEN = ("ddress already in use", "port is already", "navailable: Socket", "navailable - Socket")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessServer:
    """A server that runs as a child process; created by `ProcessRuntime.start`."""

    poll_seconds = 0.05
    watched = staticmethod(procfs.watched_by)
    mapped_files = staticmethod(procfs.mapped_files)
    written_files = staticmethod(proc.written_files)
    variables = staticmethod(proc.variables)
    memory_bytes = staticmethod(procfs.memory_bytes)

    def __init__(self, supervisor: Supervisor, pid: int, port: int, home: Path) -> None:
        self._supervisor = supervisor
        self.pid = pid  # of the server
        self._home = home
        self._log_file = home / LOG
        # By descriptor, because models run as the same user and could put something else in its place.
        self._log = os.open(self._log_file, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._log)
        self._stopped: StopResult | None = None
        self.kept = False
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def other_ports(self) -> frozenset[int]:
        """The TCP ports on which the server listens beside that of HTTP."""
        return procfs.listening_ports(self.pid) - {self.port}

    def log(self, since: int = 0, until: int | None = None) -> str:
        return excerpt(self._log, since, until)

    def log_size(self) -> int:
        return os.fstat(self._log).st_size

    def ended(self) -> bool:
        return self._supervisor.exit_code() is not None

    def children(self, of: int | None = None) -> tuple[Process, ...]:
        return procfs.children_of(self.pid if of is None else of)

    def orphans(self) -> tuple[Process, ...]:
        children = procfs.children_of(self._supervisor.pid)
        return tuple(child for child in children if child.pid != self.pid and not child.dead)

    def executable(self, pid: int) -> str:
        return proc.link(pid, "exe")

    def at_process_limit(self) -> bool:
        return procfs.at_process_limit(self.pid)

    def abort(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGABRT)

    def list_folder(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - only names are needed
        except OSError:
            return ()

    def unreadable(self, places: Sequence[str]) -> str:
        return next((place for place in places if not os.access(place, _READ[Path(place).is_dir()])), "")

    def read_text(self, file: str) -> str:
        try:
            return Path(file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def shared_memory(self) -> tuple[str, ...]:
        return shared_memory_named(region_prefix(self._home))

    def server_path(self, path: Path) -> str:
        return os.path.realpath(path)

    def host_path(self, place: str) -> Path | None:
        return Path(place)

    def keep(self) -> str:
        self.kept = True
        self._supervisor.detach()
        release_home(self._home)
        return f"{self.url}, log {self._log_file}; stop it with: kill {self.pid} && rm -r {self._home}"

    def stop(self, *, force: bool = False) -> StopResult:
        if self._stopped is None:
            started = time.monotonic()
            forced = self._end(force=force)
            left = self._supervisor.end()
            if left is None:
                left = remove_leftovers(self._home)
            self._stopped = StopResult(self._supervisor.exit_code() or 0, forced, left, time.monotonic() - started)
        return self._stopped

    def _end(self, *, force: bool) -> bool:
        """Request a stop, then kill; returns whether the server was killed."""
        if not force and not self.ended():
            self._supervisor.terminate()
            self._supervisor.wait(STOP_SECONDS + 5)
        if self.ended():
            return False
        self._supervisor.kill()
        self._supervisor.wait(_KILL_SECONDS)
        return True


@dataclass(frozen=True)
class ProcessRuntime:
    """Runs an installed server; implements `envpack.server.interface.Runtime`."""

    name = "process"
    image = ""
    installation: ServerInstallation
    port: int | None = None  # on 127.0.0.1; None selects a free one
    environment: Mapping[str, str] = field(default_factory=dict)  # in addition to the default variables
    extra_backends: Path | None = None  # folder of further backend directories
    arguments: tuple[str, ...] = ()  # they come last, so they override ours
    start_seconds: float = 10.0  # limit for the first response; a server that initializes GPUs takes longer
    _: KW_ONLY
    instead_of: Finding | None = None
    utilities: Path | None = None  # in place of the backend's triton_python_backend_utils.py

    @property
    def release(self) -> str:
        return self.installation.release

    @property
    def default_stub(self) -> Path | None:
        return default_stub(self.installation)

    @property
    def host(self) -> Host:
        return this_host()

    @contextlib.contextmanager
    def start(self, repository: Path, extra_repository: Path | None = None) -> Iterator[ProcessServer]:
        require_proc()
        if self.port is not None and not is_free(self.port):
            raise port_taken(self.port)
        remove_stale_homes()
        home = new_home()
        server = None
        try:
            refuse_unsafe_folder(home)
            write_user_site_probe(home)
            backends = link_backends(self.installation, home / "backends", self.extra_backends, self.utilities)
            folders = (repository, extra_repository)
            repositories = [str(folder.absolute()) for folder in folders if folder]
            with _kept_modes((*repositories, str(home / "backends"))):
                server = self._start_on_free_port(repositories, home, backends)
                yield server
        except BaseException:
            if server is not None:
                server.stop(force=True)
            raise
        finally:
            if server is None or not server.kept:
                if server is not None:
                    server.stop()
                remove_home(home)

    def _start_on_free_port(self, repositories: Sequence[str], home: Path, backends: tuple[str, ...]) -> ProcessServer:
        """Start the server; retry on another port if a process took the selected port in the meantime."""
        for attempt in range(1, _ATTEMPTS + 1):
            port = self.port or _free_port()
            server = self._launch(repositories, home, backends, port)
            try:
                if _wait_until_live(server, self.start_seconds):
                    return server
            except BaseException:
                server.stop(force=True)
                raise
            server.stop(force=True)
            log = server.log()
            if not any(phrase in log for phrase in _TAKEN):
                raise _failed(log, home)
            if self.port is not None or attempt == _ATTEMPTS:
                raise port_taken(port)
        raise AssertionError("unreachable")

    def _launch(
        self,
        repositories: Sequence[str],
        home: Path,
        backends: tuple[str, ...],
        port: int,
    ) -> ProcessServer:
        prefix = region_prefix(home)
        own_regions = (f"--backend-config={name},shm-region-prefix-name={prefix}" for name in backends)
        command = server_command(
            str(self.installation.executable),
            repositories,
            str(home / "backends"),
            "127.0.0.1",
            port,
            (*own_regions, *self.arguments),
        )
        with (home / LOG).open("wb") as log:
            supervisor = Supervisor(home, log)
        pid = supervisor.start(command, self._variables(home), prefix)
        return ProcessServer(supervisor, pid, port, home)

    def _variables(self, home: Path) -> dict[str, str]:
        # No locale, as in Triton's images.
        variables = {"PATH": _PATH, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
        if libraries := library_path(self.installation, home):
            variables["LD_LIBRARY_PATH"] = libraries
        return {**variables, **self.environment, VARIABLE: str(home)}


@contextlib.contextmanager
def _kept_modes(folders: Iterable[str]) -> Iterator[None]:
    """Give stubs their modes again: a server gives one that needs an environment to start the mode 0100."""
    stubs = [file for folder in folders for file in Path(folder).glob(f"*/{STUB_NAME}") if file.is_file()]
    modes = {file: stat.S_IMODE(file.stat().st_mode) for file in stubs}
    try:
        yield
    finally:
        for file, mode in modes.items():
            with contextlib.suppress(OSError):  # it was removed, or belongs to another user
                if stat.S_IMODE(file.stat().st_mode) == stat.S_IXUSR:
                    file.chmod(mode)


def _wait_until_live(server: ProcessServer, seconds: float) -> bool:
    """Whether the server itself answers in time: another program may have taken the port since."""
    client = Client(server.url, timeout=2)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not server.ended():
        if procfs.listens(server.pid, server.port) and client.live():
            return True
        time.sleep(_POLL_SECONDS)
    return False


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _failed(log: str, home: Path) -> ServerError:
    lines = "\n".join(start_error(log)) or "(no output)"
    what = f"the Triton server did not start; its last lines:\n{lines.replace(str(home), '<temporary>')}"
    fix = LIMIT if NO_MORE in lines else files_limit(log)
    fix = fix or "check server_arg if you set it; run tritonserver to see the full output"
    return ServerError("server-failed", what, fix)
