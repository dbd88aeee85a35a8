"""Waits for conditions, and runs tasks in threads.

What tasks report, and how they end, arrives in the thread of the caller. Ctrl-C ends the wait of the caller at once,
the programs that tasks have started, and requests that wait for an answer.
"""

from __future__ import annotations

import contextlib
import os
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeVar

from envpack.support.processes import RunningPrograms, raise_if_stopped
from envpack.support.progress import Progress, count_bytes

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Found = TypeVar("_Found")
_PAUSE = 0.2  # seconds between two looks at whether to end
_BATCH = 64  # items of a task: one task costs as much as a small file

# Is called with the number of bytes that were transferred since the last call.
Report = Callable[[int], None]


def usable_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _fill_variables() -> None:
    """Read the variables of this Python, of which two threads that need them first find only some up to Python 3.11."""
    sysconfig.get_config_vars()


def found_within(seconds: float, find: Callable[[], _Found], pause: float = 0.05) -> _Found:
    """What a function finds, which is called again after each pause until that is true or time is up."""
    until = time.monotonic() + seconds
    while not (found := find()) and time.monotonic() < until:
        time.sleep(pause)
    return found


class Pool:
    """Threads for tasks. If its ``with`` block fails, no task is begun any more, and those that run are stopped."""

    def __init__(self, threads: int) -> None:
        _fill_variables()
        self._executor = ThreadPoolExecutor(threads)
        self._programs = RunningPrograms()
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._programs.stop()
        self._executor.shutdown()

    def submit(self, function: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
        return self._executor.submit(self._programs.context().run, function, *arguments)

    def call(self, function: Callable[[], None]) -> None:
        """Let `run` call a function in the thread of its caller; for tasks."""
        self._calls.put(function)

    def run(self, tasks: Sequence[Callable[[], _Result]], ended: Callable[[int, Future[_Result]], None]) -> None:
        """Run all tasks; ``ended`` is called with the number of each that has ended."""
        left = len(tasks)

        def end(number: int, future: Future[_Result]) -> None:
            nonlocal left
            left -= 1
            ended(number, future)

        def note(number: int, future: Future[_Result]) -> None:
            self.call(partial(end, number, future))

        for number, task in enumerate(tasks):
            self.submit(task).add_done_callback(partial(note, number))
        while left:
            raise_if_stopped()
            with contextlib.suppress(Empty):
                self._calls.get(timeout=_PAUSE)()


def map_batches(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[list[_Result]]:
    """The results in order, in lists of up to 64; raises what ``function`` raises."""
    batches = [items[start : start + _BATCH] for start in range(0, len(items), _BATCH)]
    with Pool(usable_cores()) as pool:
        for results in [pool.submit(lambda batch: [function(item) for item in batch], batch) for batch in batches]:
            yield results.result()


def transfer_all(
    tasks: Sequence[Callable[[Report], _Result]],
    *,
    total: int,
    threads: int,
    progress: Progress,
    done: Callable[[int, _Result], None],
) -> None:
    """Run transfers in threads; the first failure cancels those that have not begun."""
    add = count_bytes(progress, total)

    def report(size: int) -> None:
        pool.call(partial(add, size))

    with Pool(threads) as pool:
        pool.run([partial(task, report) for task in tasks], lambda number, future: done(number, future.result()))


def in_background(function: Callable[[], _Result], name: str) -> Future[_Result]:
    """The result of a function, which runs in a thread of its own that ends with the program, whatever it waits for."""
    _fill_variables()
    result: Future[_Result] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


def interruptible(request: Callable[[], _Result]) -> _Result:
    """The result of a request, for which Ctrl-C, or the end of a `Pool`, need not wait.

    A library that waits for an answer does not look at signals. So the request runs in the background, and this thread
    waits for it in a way that can be interrupted.
    """
    answer = in_background(request, "request")
    while not wait([answer], _PAUSE).done:
        raise_if_stopped()
    return answer.result()
