"""Identifies the processes that run a model, their Python, and those that have died; measures loads that cannot end."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath as PosixPath

from envpack.server.interface import Process, Server
from envpack.server.log import StubReport, last_started_stub, restarts, stub_reports
from envpack.stub.inspection import inspect_stub
from envpack.support.errors import StubError
from envpack.support.pool import found_within
from envpack.support.processes import how_ended
from envpack.verification.verdict import StubIdentity

_MODEL_FILE, _INSTANCE, _ARGUMENTS = 1, 8, 9
_TEMPLATE = "--template"  # behind the arguments of a stub, in the command line of a template and of its forks
_LIBPYTHON = re.compile(r"/libpython(3\.\d+)\S*\.so")
_NUMPY = re.compile(r"^(?P<packages>.*/(?:site|dist)-packages)/numpy/")
_NUMPY_INFO = re.compile(r"^numpy-(?P<version>[^-]+)\.dist-info$")
_EXTENSION = re.compile(r"-packages/.*\.(?:cpython-3\d+[^/]*|abi3)\.so$")
_REPORT_SECONDS = 3.0
_ABORT_SECONDS = 2.0
_DYING_NAMES = ("triton_python_b", "bash", "sh", "env")


@dataclass(frozen=True)
class Instance:
    """A living instance of a model.

    The process of envpack's stub that the server starts runs no model. After a cold start a child of it does; after a
    warm start a process does that the stub watches, a fork of the model's template.
    """

    stub: Process  # the process that the server has started
    # The process that runs the model; the same for another stub than envpack's, and while there is none.
    worker: Process

    @property
    def name(self) -> str:
        return self.stub.arguments[_INSTANCE]

    @property
    def template(self) -> int:
        """Process id of the template that the worker was forked from, 0 if there is none."""
        # If a fork is not safe, the template becomes the worker of the stub that has made it.
        is_fork = is_template(self.worker) and self.worker.parent != self.stub.pid
        return self.worker.parent if is_fork else 0


def stub_processes(server: Server, model: str) -> tuple[Process, ...]:
    """The living processes that run a model's instances, one for each, ordered by the process ids of their stubs."""
    return tuple(instance.worker for instance in instances(server, model))


def instances(server: Server, model: str) -> tuple[Instance, ...]:
    return tuple(Instance(stub, _worker(server, stub)) for stub in living_stubs(server) if model_of(stub) == model)


def _worker(server: Server, stub: Process) -> Process:
    watched, children = _alive(server.watched(stub.pid)), _alive(server.children(stub.pid))
    known = [process for process in watched if model_of(process) == model_of(stub)]
    known += [child for child in children if child.arguments == stub.arguments]
    others = (process for process in (*watched, *children) if not is_template(process))
    # A model can give its process another command line, as setproctitle does.
    titled = (process for process in others if mapped_python(server.mapped_files(process.pid)))
    process = next(itertools.chain(known, titled), None)
    # A process that contains Python runs the model itself, and such a child is one that the model has forked.
    return stub if process is None or mapped_python(server.mapped_files(stub.pid)) else process


def living_stubs(server: Server) -> tuple[Process, ...]:
    """The living stubs of all models: the processes that the server has started.

    A server that is process 1 of its container also has templates as children, whose stubs have ended.
    """
    return tuple(child for child in _alive(server.children()) if model_of(child) and not is_template(child))


def reports(server: Server, found: tuple[Instance, ...]) -> tuple[StubReport, ...]:
    """The reports of instances with envpack's stub, in their order; waits up to three seconds for late ones."""
    until = time.monotonic() + _REPORT_SECONDS
    return tuple(_report(server, instance.name, until - time.monotonic()) for instance in found)


def identify(server: Server, instance: Instance) -> StubIdentity:
    """Identify a stub by its report if it is envpack's, otherwise by the files that it has mapped."""
    process = instance.worker
    executable = server.executable(process.pid)
    ours = _version_of_ours(server.host_path(executable))
    report = _report(server, instance.name, _REPORT_SECONDS if ours else 0)
    mapped = server.mapped_files(process.pid)
    return StubIdentity(
        process.pid,
        executable,
        report.python or mapped_python(mapped),
        report.numpy or _mapped_numpy(server, mapped),
        report.version or ours,
        start=report.start,
    )


def _report(server: Server, instance: str, seconds: float) -> StubReport:
    """The report that a stub writes at its start; it can reach the log some time after the model is ready."""
    return found_within(seconds, lambda: stub_reports(server.log()).get(instance)) or StubReport(instance)


def why_ended(server: Server, model: str) -> str:
    """Why the process before one of an instance ended, as the new one reports; ``""`` if none does in three seconds."""

    def why() -> str:
        known = restarts(server.log())
        return next((known[instance.name] for instance in instances(server, model) if instance.name in known), "")

    return found_within(_REPORT_SECONDS, why)


def _version_of_ours(executable: Path | None) -> str:
    try:
        return inspect_stub(executable).version if executable else ""
    except (StubError, OSError):
        return ""


def dead_stubs(server: Server) -> tuple[int, ...]:
    """Process ids of dead stubs, and of dead shells that would have become stubs, that have not been reaped."""
    return tuple(c.pid for c in server.children() if c.dead and c.name in _DYING_NAMES)


def describe_exit(server: Server, ignore: frozenset[int]) -> str:
    """How the most recently dead stub ended, in words; ``""`` if unknown or if its exit status was 0."""
    children = server.children()
    ended = [c.status for c in children if c.dead and c.status and c.name in _DYING_NAMES and c.pid not in ignore]
    if not ended:
        return ""
    return f"it ended {how_ended(os.waitstatus_to_exitcode(ended[-1]))}"


def abort_workers(server: Server, model: str, spared: Collection[int] = ()) -> None:
    """Abort the workers of a blocked model, or the template that imports it; but those of ``spared`` stubs. They write
    their Python stacks, which their stubs pass on to the log when they notice the end.
    """
    found = _others(server, model, spared)
    running = tuple(process for instance in found for process in _running(server, instance))
    _abort(server, running, lambda: _below(server, found))


def abort_stubs(server: Server, model: str, spared: Collection[int] = ()) -> None:
    """Abort a blocked model's workers, then its stubs, which write their stacks if they run the model themselves."""
    abort_workers(server, model, spared)
    _abort(server, _stubs(server, model, spared), lambda: _stubs(server, model, spared))


def _running(server: Server, instance: Instance) -> tuple[Process, ...]:
    """The worker of an instance; without one, the template that its stub has made."""
    if instance.worker != instance.stub:
        return (instance.worker,)
    return tuple(child for child in _alive(server.children(instance.stub.pid)) if is_template(child))


def _stubs(server: Server, model: str, spared: Collection[int]) -> tuple[Process, ...]:
    return tuple(instance.stub for instance in _others(server, model, spared))


def _others(server: Server, model: str, spared: Collection[int]) -> tuple[Instance, ...]:
    return tuple(instance for instance in instances(server, model) if instance.stub.pid not in spared)


def _below(server: Server, found: tuple[Instance, ...]) -> Iterator[Process]:
    for instance in found:
        yield from server.children(instance.stub.pid)
        yield from server.watched(instance.stub.pid)


def _abort(server: Server, processes: tuple[Process, ...], find: Callable[[], Iterable[Process]]) -> None:
    """Abort processes, and wait up to two seconds until ``find`` returns none of them."""
    for process in processes:
        server.abort(process.pid)
    pids = {process.pid for process in processes}
    found_within(_ABORT_SECONDS, lambda: pids.isdisjoint(process.pid for process in find()))


def foreign_files(mapped: tuple[str, ...], environment: str) -> tuple[str, ...]:
    """The Python library and the extension modules that a stub has mapped from outside ``environment``."""
    relevant = (path for path in mapped if _LIBPYTHON.search(path) or _EXTENSION.search(path))
    return tuple(path for path in relevant if not PosixPath(path).is_relative_to(environment))


def _alive(processes: Iterable[Process]) -> tuple[Process, ...]:
    return tuple(process for process in processes if not process.dead)


def is_template(process: Process) -> bool:
    """Whether a process is a model's template, or was forked from one."""
    return _TEMPLATE in process.arguments[_ARGUMENTS:]


def model_of(process: Process) -> str:
    """Name of the model's folder, from the stub's first argument ``<model>/<version>/<file>``."""
    if len(process.arguments) < _ARGUMENTS:
        return ""
    return PosixPath(process.arguments[_MODEL_FILE]).parent.parent.name


def mapped_python(mapped: tuple[str, ...]) -> str:
    """The minor version of the first Python library among mapped files, ``""`` without one."""
    return next((match[1] for match in map(_LIBPYTHON.search, mapped) if match), "")


def _mapped_numpy(server: Server, mapped: tuple[str, ...]) -> str:
    packages = next((match["packages"] for match in map(_NUMPY.match, mapped) if match), None)
    if packages is None:
        return ""
    infos = map(_NUMPY_INFO.search, server.list_folder(packages))
    return next((match["version"] for match in infos if match), "")


_LONGEST_INTERVAL = 0.25  # seconds


class DeadStubTimer:
    """Measures for how long stubs have been dead without being reaped by the server.

    Reaped stubs are forgotten: every stub that completed a configuration ends this way. A long gap between two updates
    counts only in part: if this process could not run, neither could the server.
    """

    def __init__(self, now: float) -> None:
        self._updated = now
        self._seconds: dict[int, float] = {}

    def update(self, dead: frozenset[int], now: float) -> None:
        since = min(now - self._updated, _LONGEST_INTERVAL)
        self._updated = now
        self._seconds = {pid: self._seconds[pid] + since if pid in self._seconds else 0.0 for pid in dead}

    @property
    def seconds(self) -> float:
        """Seconds since the death of the stub that has been dead longest."""
        return max(self._seconds.values(), default=0.0)


class FullTimer:
    """Measures for how long the server cannot have started a thread, although the model is initialized.

    The server then starts threads of its own. If it cannot, the load never ends, and the model is not to blame.
    """

    def __init__(self) -> None:
        self._since = 0.0
        self.seconds = 0.0  # 0 if the last update has found room

    def update(self, server: Server, log: str, now: float) -> None:
        is_full = is_initialized(log) and server.at_process_limit()
        self._since = (self._since or now) if is_full else 0.0
        self.seconds = now - self._since if is_full else 0.0


def is_initialized(log: str) -> bool:
    """Whether the instance that was started last has initialized its model, by the report of envpack's stub."""
    report = stub_reports(log).get(last_started_stub(log))
    return report is not None and report.initialize_seconds is not None
