"""What runs in the workers of a dask cluster: each task is a process of its own, which ends with its worker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import pickle
import socket
import sys
import threading
import time
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker

import envpack
from envpack.fleet.tasks import Product, Task
from envpack.support.errors import ServerError
from envpack.support.processes import RunningPrograms, follow, how_ended, stoppable
from envpack.support.temp_dirs import temp_dir
from envpack.workflow.recipes import abilities

TOPIC = "envpack"
SHARE, QUANTITY = 1.0, 1e9  # of an ability: what a task takes, and what a worker has, so that it is never used up
_LAST_LINES = 12
_RUNNING: dict[str, RunningPrograms] = {}


def describe() -> str:
    """Version of envpack on this worker."""
    return envpack.__version__


class Announcement(WorkerPlugin):
    """Gives a worker its abilities as resources of dask, and ends the process of a task that was cancelled.

    A worker with another version of envpack than the caller gets none, so that it receives no task.
    """

    name = f"envpack-{envpack.__version__}"
    idempotent = True

    def __init__(self) -> None:
        self._version = envpack.__version__

    async def setup(self, worker: Worker) -> None:
        if self._version == envpack.__version__:
            found = await asyncio.to_thread(abilities)
            await worker.set_resources(**dict.fromkeys((*found, version_ability(self._version)), QUANTITY))

    def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - the signature of a plugin
        """End all processes of a worker that closes."""
        for programs in list(_RUNNING.values()):
            programs.stop()

    def transition(self, key: object, start: str, finish: str, **_: Any) -> None:
        """End the process of a task that was cancelled."""
        programs = _RUNNING.get(str(key))
        if programs and start == "executing" and finish not in ("memory", "error"):
            threading.Thread(target=programs.stop, daemon=True).start()


def version_ability(version: str) -> str:
    return f"envpack {version}"


def schedule_waiting(dask_scheduler: Any) -> None:
    """In the scheduler: schedule what a worker became able to do; dask itself does so only when one connects."""
    for worker in list(dask_scheduler.workers.values()):
        if waiting := dask_scheduler.bulk_schedule_unrunnable_after_adding_worker(worker):
            dask_scheduler.transitions(waiting, stimulus_id=f"{TOPIC}-{time.time()}")


def carry_out(task: Task) -> Product:
    """Carry out a task in a process, and report its steps to everyone who listens to `TOPIC`."""
    worker = get_worker()
    host, lines = socket.gethostname(), list[str]()

    def report(**event: object) -> None:
        worker.log_event(TOPIC, {"key": task.key, "name": str(worker.name), **event})

    def on_line(line: str) -> None:
        try:
            report(**json.loads(line))
        except (ValueError, TypeError):  # of a program that writes to standard output
            lines.append(line)
            report(detail=line)

    report(started=host)
    if task.version != envpack.__version__:
        reason = f"worker {worker.name} has envpack {envpack.__version__}, not {task.version}"
        error = ServerError("worker-version", reason, "install the same version on all workers")
        return Product(error=error, worker=str(worker.name), host=host)
    with temp_dir("task") as folder, stoppable() as programs:
        files = folder / "task", folder / "product"
        files[0].write_bytes(pickle.dumps(task))
        _RUNNING[task.key] = programs
        command = [sys.executable, "-P", "-m", "envpack.fleet.child", *map(str, files), str(os.getpid())]
        try:
            status = follow(command, env=os.environ, on_line=on_line)
        except KeyboardInterrupt:
            raise RuntimeError(f"{task.key} was cancelled") from None
        finally:
            _RUNNING.pop(task.key, None)
        with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
            product: Product = pickle.loads(files[1].read_bytes())  # noqa: S301 - our own child wrote it
            return dataclasses.replace(product, worker=str(worker.name), host=host)
    reason = f"the process on worker {worker.name} ended {how_ended(status)} and without a result"
    fix = "see the worker's log" if status >= 0 else "look for what ended it, for example a limit of memory"
    error = ServerError("worker-failed", reason, fix, details="\n".join(lines[-_LAST_LINES:]))
    return Product(error=error, worker=str(worker.name), host=host)
