"""Runs uploads side by side, and reports their progress in the thread of the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from envpack.support.processes import raise_if_stopped
from envpack.support.progress import Progress

_Result = TypeVar("_Result")
_PAUSE = 0.2  # seconds between two reports

# Is called with the number of bytes that were transferred since the last call.
Report = Callable[[int], None]


@contextmanager
def request_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for requests; what has not begun is cancelled if the block fails."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def transfer_all(
    tasks: Sequence[Callable[[Report], _Result]],
    *,
    total: int,
    threads: int,
    progress: Progress,
    done: Callable[[int, _Result], None],
) -> None:
    """Run transfers in threads; the first failure cancels those that have not begun.

    Args:
        tasks: each transfers something and reports its bytes.
        total: bytes of all.
        threads: how many run at once.
        progress: receives the bytes, in the caller's thread.
        done: called in the caller's thread with the number and the result of each task that has ended.

    Raises:
        Exception: what a task raises.
    """
    counter = _Counter()
    with request_threads(threads) as pool:
        waiting = {pool.submit(task, counter.add): number for number, task in enumerate(tasks)}
        while waiting:
            raise_if_stopped()
            for future in wait(waiting, _PAUSE, FIRST_COMPLETED).done:
                done(waiting.pop(future), future.result())
            progress.advance(min(counter.bytes, total), total, "bytes")


class _Counter:
    """A number of bytes to which several threads add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.bytes = 0

    def add(self, size: int) -> None:
        with self._lock:
            self.bytes += size
