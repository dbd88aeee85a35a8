"""Runs requests side by side, so that Ctrl-C ends them at once, and reports progress in the thread of the caller.

The library waits for an answer without looking at signals. So each request runs in a thread of its own, which ends with
the program, and the thread that needs the answer waits for it in a way that can be interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Self, TypeVar

from envpack.support.processes import raise_if_stopped
from envpack.support.progress import Progress

_Result = TypeVar("_Result")
_PAUSE = 0.2  # seconds between two reports, and between two looks at whether to end
_thread = threading.local()

# Is called with the number of bytes that were transferred since the last call.
Report = Callable[[int], None]


class RequestThreads:
    """Threads for requests. Use it in a ``with`` block: if that fails, no request is begun or waited for any more."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count)
        self._stop = threading.Event()

    def submit(self, function: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
        """Run a function in one of the threads."""
        return self._pool.submit(self._run, function, arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, function: Callable[..., _Result], arguments: tuple[Any, ...]) -> _Result:
        _thread.stop = self._stop
        return function(*arguments)


def interruptible(request: Callable[[], _Result]) -> _Result:
    """The result of a request, for which Ctrl-C, or the end of `RequestThreads`, need not wait."""
    answer: Future[_Result] = Future()

    def run() -> None:
        try:
            answer.set_result(request())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="request", daemon=True).start()
    stop: threading.Event | None = getattr(_thread, "stop", None)
    while True:
        done, _ = wait([answer], _PAUSE)
        if done:
            return answer.result()
        if stop is not None and stop.is_set():
            raise KeyboardInterrupt
        raise_if_stopped()


def transfer_all(
    tasks: Sequence[Callable[[Report], _Result]],
    *,
    total: int,
    threads: int,
    progress: Progress,
    done: Callable[[int, _Result], None],
) -> None:
    """Run transfers in threads; the first failure cancels those that have not begun."""
    counter = _Counter()
    with RequestThreads(threads) as pool:
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
