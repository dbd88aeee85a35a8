"""Real dask clusters on 127.0.0.1, whose schedulers and workers tests start and kill."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.faults.command_line import variables
from tests.waiting import soon

CHILD = b"envpack.fleet.child"


class Cluster:
    """A scheduler and its workers; what is left of them at the end is killed."""

    def __init__(self, folder: Path, *, tls: Certificates | None = None) -> None:
        self._folder, self._tls = folder, tls
        self._port = free_port()
        self._processes: dict[str, subprocess.Popen] = {}

    @property
    def address(self) -> str:
        return f"{'tls' if self._tls else 'tcp'}://127.0.0.1:{self._port}"

    def start_scheduler(self) -> None:
        port = ("--port", str(self._port), "--protocol", "tls" if self._tls else "tcp")
        quick = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "6s"}  # until a worker that does not answer is lost
        self._start("scheduler", ("scheduler", "--host", "127.0.0.1", *port, "--no-dashboard"), quick)
        soon(lambda: answers(self._port))

    def start_worker(self, name: str, *options: str | Path, **changes: str | None) -> None:
        words = ("worker", self.address, "--host", "127.0.0.1", "--name", name, "--nthreads", "1", "--no-nanny")
        self._start(name, (*words, "--no-dashboard", "--death-timeout", "10", *map(str, options)), changes)
        soon(lambda: "Registered to" in self._log(name))

    def tasks(self) -> list[int]:
        """The processes that carry out tasks on its workers."""
        return [task for process in self._processes.values() for task in task_processes(process.pid)]

    def signal(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        """End a part at once, as the system does without memory."""
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait(30)

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(30)

    def _start(self, name: str, words: tuple[str, ...], changes: dict[str, str | None]) -> None:
        everywhere = variables({**(self._tls.variables() if self._tls else {}), **changes})
        with (self._folder / f"{name}.log").open("w") as log:
            command = [sys.executable, "-m", "dask", *words]
            self._processes[name] = subprocess.Popen(command, env=everywhere, stdout=log, stderr=log, cwd="/")

    def _log(self, name: str) -> str:
        if self._processes[name].poll() is not None:
            raise AssertionError((self._folder / f"{name}.log").read_text())
        return (self._folder / f"{name}.log").read_text()


class Certificates:
    """A certificate authority and one certificate for 127.0.0.1 from it."""

    def __init__(self, folder: Path) -> None:
        import distributed

        made = distributed.Security.temporary()
        self._files = {name: folder / f"{name}.pem" for name in ("ca", "cert", "key")}
        self._files["ca"].write_text(made.tls_ca_file)
        self._files["cert"].write_text(made.tls_client_cert)
        self._files["key"].write_text(made.tls_client_key)

    def variables(self, *, ca: Certificates | None = None) -> dict[str, str]:
        """The usual configuration of dask, with the authority of other certificates if they are given."""
        prefix, files = "DASK_DISTRIBUTED__COMM__TLS", self._files
        found = {f"{prefix}__CA_FILE": str((ca or self)._files["ca"])}
        for role in ("SCHEDULER", "WORKER", "CLIENT"):
            found |= {f"{prefix}__{role}__CERT": str(files["cert"]), f"{prefix}__{role}__KEY": str(files["key"])}
        return found


@contextlib.contextmanager
def cluster(folder: Path, *workers: str, tls: Certificates | None = None, **changes: str | None):
    """A running cluster with named workers; ``changes`` are variables of theirs."""
    made = Cluster(folder, tls=tls)
    try:
        made.start_scheduler()
        for name in workers:
            made.start_worker(name, **changes)
        yield made
    finally:
        made.stop()


def task_processes(ancestor: int) -> list[int]:
    """The processes that carry out tasks, among the descendants of a process."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _carries_out(pid, ancestor)]


def runs(pid: int) -> bool:
    """Whether a process has not ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def children_of(ancestor: int) -> list[int]:
    """All processes that a process has started, and those that they have."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _descends(pid, ancestor)]


def worker_of(task: int) -> int:
    """The process that started another one."""
    return int(Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[1])


def _carries_out(pid: int, ancestor: int) -> bool:
    try:
        return CHILD in Path(f"/proc/{pid}/cmdline").read_bytes() and _descends(pid, ancestor)
    except OSError:
        return False


def _descends(pid: int, ancestor: int) -> bool:
    try:
        parent = worker_of(pid)
        while parent > 1 and parent != ancestor:
            parent = worker_of(parent)
    except (OSError, IndexError):
        return False
    return parent == ancestor


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
