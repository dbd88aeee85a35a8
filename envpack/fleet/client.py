"""Gives tasks to a cluster, shows what its workers do, and waits until all have ended."""

from __future__ import annotations

import contextlib
import queue
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from envpack.fleet.cluster import Address, abilities_of, answer, connected, lost, worker_facts
from envpack.fleet.tasks import Done, Product, Task
from envpack.support.errors import EnvpackError, ServerError, UsageError
from envpack.support.pool import in_background
from envpack.support.progress import Progress
from envpack.support.text import counted

T = TypeVar("T")
_LOOK = 2.0  # seconds between two looks at the workers
_PATIENCE = 60.0  # seconds without a worker that can carry out a task
_FAREWELL = 10  # seconds for a scheduler to cancel what is left
_SILENCE = 30.0  # seconds without a sign of a worker until that is said
_LOST = "the connection to the scheduler was lost"


def carry_out_all(address: Address, tasks: Sequence[Task], progress: Progress) -> tuple[Done, ...]:
    """How each task ended, in the same order; one that fails does not keep the others from being carried out."""
    if address.scheduler and any(task.makes_files and not task.store for task in tasks):
        what = "results come back from another machine through a store only"
        raise UsageError("fleet-needs-store", what, "add --store URL, or use --on local:2", str(address))
    if not tasks:
        return ()
    progress.begin(f"connect to {address}")
    with connected(address, progress) as client:
        workers = abilities_of(answer(lambda: worker_facts(client), address, progress))
        progress.end(counted(len(workers), "worker"))
        _refuse_impossible(tasks, workers, address)
        return _Run(client, address, tasks, progress).wait()


class _Run:
    def __init__(self, client: Any, address: Address, tasks: Sequence[Task], progress: Progress) -> None:
        self._client, self._address, self._progress = client, address, progress
        self._tasks = {task.key: task for task in tasks}
        self._attempts: Counter[str] = Counter()
        self._done: dict[str, Done] = {}
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._possible = time.monotonic()
        self._able: set[str] = set()
        self._seen: dict[str, tuple[Any, float]] = {}  # when the scheduler heard of a worker, and since when we know it

    def wait(self) -> tuple[Done, ...]:
        from envpack.fleet.worker import SHARE, TOPIC, carry_out, version_ability

        self._client.subscribe_topic(TOPIC, lambda event: self._inbox.put(lambda: self._report(event[1])))
        futures = []
        try:
            for task in self._tasks.values():
                needs = dict.fromkeys((*task.needs, version_ability(task.version)), SHARE)
                future = self._client.submit(carry_out, task, key=task.key, resources=needs)
                future.add_done_callback(self._fetch)
                futures.append(future)
            self._wait()
        finally:
            if len(self._done) < len(self._tasks):
                with contextlib.suppress(Exception):  # the scheduler may be lost
                    answer(lambda: self._client.cancel(futures), self._address, self._progress, seconds=_FAREWELL)
        return tuple(self._done[key] for key in self._tasks)

    def _wait(self) -> None:
        looked = time.monotonic()
        self._count()
        while len(self._done) < len(self._tasks):
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=_LOOK)()
            if time.monotonic() - looked >= _LOOK:
                looked = time.monotonic()
                self._look()

    def _look(self) -> None:
        """Notice that no worker is left for a task, which dask itself would wait for."""
        if self._client.status != "running":
            raise lost(self._address, _LOST)
        facts = self._answer(lambda: worker_facts(self._client))
        self._say_who_is_silent(facts)
        workers = abilities_of(facts)
        self._offer(workers)
        left = [task for key, task in self._tasks.items() if key not in self._done]
        if not any(_lacking(task, workers) for task in left):
            self._possible = time.monotonic()
        elif time.monotonic() - self._possible > _PATIENCE:
            _refuse_impossible(left, workers, self._address)

    def _offer(self, workers: Mapping[str, frozenset[str]]) -> None:
        """Have tasks that wait for a worker scheduled if one has announced its abilities since the last look."""
        from envpack.fleet.worker import schedule_waiting

        able = {address for address, found in workers.items() if found}
        if able - self._able:
            self._answer(lambda: self._client.run_on_scheduler(schedule_waiting))
        self._able = able

    def _answer(self, call: Callable[[], T]) -> T:
        return answer(call, self._address, self._progress)

    def _say_who_is_silent(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Say which workers the scheduler has not heard of; it gives their work to others in its own time."""
        now = time.monotonic()
        for worker, found in facts.items():
            seen, since = self._seen.get(worker, (None, now))
            if seen != found["last_seen"]:
                since = now
            elif now - since >= _SILENCE:
                since = now
                silent = f"worker {found['name']} has been silent for {_SILENCE:.0f} s"
                self._progress.detail(f"{silent}; if it stays so, its work goes to others")
            self._seen[worker] = found["last_seen"], since

    def _report(self, event: Mapping[str, Any]) -> None:
        task = self._tasks.get(event.get("key", ""))
        if task is None or task.key in self._done:
            return
        label = f"{task.label} [{event['name']}]"
        if "started" in event:
            self._attempts[task.key] += 1
        elif "detail" in event:
            self._progress.detail(f"{label}: {event['detail']}")
        elif "outcome" in event:
            self._progress.begin(f"{label}: {event['end']}")
            self._progress.end(f"{event['outcome']}, {event['seconds']:.1f} s")
            self._count()

    def _fetch(self, future: Any) -> None:
        """Have a product noted, without waiting for the scheduler that it comes through, and that may stand still."""
        task = self._tasks[str(future.key)]
        found = in_background(lambda: self._product(future, task), "product")
        found.add_done_callback(lambda product: self._inbox.put(lambda: self._end(task, product.result())))

    def _product(self, future: Any, task: Task) -> Product:
        if future.status != "finished":
            return Product(error=self._failure(future, task))
        try:
            product: Product = future.result()
        except OSError as error:
            raise lost(self._address, _LOST) from error
        return product

    def _end(self, task: Task, product: Product) -> None:
        attempts = max(self._attempts[task.key], 1)
        self._done[task.key] = Done(task=task, product=product, attempts=attempts, error=product.error)
        self._progress.begin(f"{task.label} [{product.worker}]")
        self._progress.end(
            "failed" if product.error else f"{'done' if product.fresh else 'up to date'}, {product.seconds:.1f} s"
        )
        self._count()

    def _failure(self, future: Any, task: Task) -> EnvpackError:
        if future.status == "cancelled":
            raise lost(self._address, _LOST)
        from distributed.scheduler import KilledWorker

        error = future.exception()
        if isinstance(error, KilledWorker):
            what = f"{task.label}: each worker that built it was lost"
            fix = "look for what ended the workers, for example a limit of memory"
            return ServerError("worker-lost", what, fix, str(self._address))
        what = f"{task.label}: {type(error).__name__}: {error}"
        return ServerError("worker-failed", what, "see the worker's log", str(self._address))

    def _count(self) -> None:
        if left := len(self._tasks) - len(self._done):
            self._progress.begin(f"{left} of {counted(len(self._tasks), 'task')} left on {self._address}")


def _refuse_impossible(tasks: Sequence[Task], workers: Mapping[str, frozenset[str]], address: Address) -> None:
    lacking = ((task.label, _lacking(task, workers)) for task in tasks)
    impossible = [f"{label} needs {', '.join(missing)}" for label, missing in lacking if missing]
    if impossible:
        has = sorted(set().union(*workers.values())) if workers else ["nothing, since there is none"]
        what = f"no worker can carry out {counted(len(impossible), 'task')}: {'; '.join(impossible)}"
        raise ServerError("no-worker-can", what, f"add such a worker; the workers have {', '.join(has)}", str(address))


def _lacking(task: Task, workers: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """What the best worker for a task lacks; nothing if one has all."""
    from envpack.fleet.worker import version_ability

    needs = (*task.needs, version_ability(task.version))
    lacking = (tuple(need for need in needs if need not in has) for has in workers.values())
    return min(lacking, key=len, default=needs)
