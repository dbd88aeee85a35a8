"""Compiling several stubs at once, on as many cores as there are."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from envpack.stub.build import Stub, cached_stub, compile_shared, follow
from envpack.stub.recipe import Recipe
from envpack.support.errors import EnvpackError
from envpack.support.processes import stoppable
from envpack.support.progress import NoProgress, Progress

_Key = TypeVar("_Key", bound=Hashable)
_Made = TypeVar("_Made")
# Does one piece of work with so many cores, telling its progress.
_Work = Callable[[int, Progress], _Made]
_Ended = Callable[[_Key, _Made | EnvpackError], None]


def compile_stubs(
    recipes: Sequence[Recipe],
    ended: Callable[[Recipe, Stub | EnvpackError], None],
    *,
    cache: Path | None = None,
    jobs: int = 0,
    progress: Progress | None = None,
) -> None:
    """Compile stubs, or take them from the cache; what several of them share is compiled once, and first.

    Args:
        recipes: what to compile.
        ended: called with each stub as soon as it is there, or with what went wrong, always in the caller's thread.
            The others go on in any case.
        cache: folder of compiled stubs, by default the user's cache.
        jobs: how many compilers run at once, 0 for as many as there are cores.
        progress: told about details, in the caller's thread.

    Raises:
        KeyboardInterrupt: from Ctrl-C, or from ``ended``; then everything that was going on has ended. The same is true
            of any other exception that is no `EnvpackError`.
    """
    progress, jobs = progress or NoProgress(), jobs or usable_cores()
    failed: dict[str, EnvpackError] = {}
    uncached = [recipe for recipe in recipes if cached_stub(recipe, cache=cache) is None]
    shared = {recipe.common_entry: recipe for recipe in uncached}

    def shared_ended(entry: str, outcome: EnvpackError | None) -> None:
        if outcome is not None:
            failed[entry] = outcome

    def compile_one(recipe: Recipe, cores: int, progress: Progress) -> Stub:
        return follow(recipe, cache=cache, jobs=cores, progress=progress)

    def compile_common(recipe: Recipe, cores: int, progress: Progress) -> None:
        compile_shared(recipe, cache=cache, jobs=cores, progress=progress)

    _at_once({entry: partial(compile_common, recipe) for entry, recipe in shared.items()}, shared_ended, jobs, progress)
    doomed = [recipe for recipe in uncached if recipe.common_entry in failed]
    for recipe in doomed:
        ended(recipe, failed[recipe.common_entry])
    work = {recipe: partial(compile_one, recipe) for recipe in recipes if recipe not in doomed}
    _at_once(work, ended, jobs, progress)


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class _Voice:
    """A `Progress` that hands details to another thread."""

    details: SimpleQueue[Callable[[], None]]
    listener: Progress
    label: str

    def begin(self, task: str) -> None:
        pass

    def detail(self, text: str) -> None:
        self.details.put(partial(self.listener.detail, f"{self.label}: {text}" if self.label else text))

    def advance(self, done: int, total: int, unit: str, *, size: int = 0) -> None:
        pass

    def end(self, outcome: str) -> None:
        pass


def _at_once(work: Mapping[_Key, _Work[_Made]], ended: _Ended[_Key, _Made], jobs: int, progress: Progress) -> None:
    """Do all of it in threads, as many as there are cores, and share the cores among them."""
    if not work:
        return
    threads = min(len(work), jobs)
    news: SimpleQueue[Callable[[], None]] = SimpleQueue()
    waiting = set(work)

    def told(key: _Key, future: Future[_Made]) -> None:
        waiting.discard(key)
        try:
            outcome: _Made | EnvpackError = future.result()
        except EnvpackError as error:
            outcome = error
        ended(key, outcome)

    with stoppable() as programs, ThreadPoolExecutor(threads) as pool:
        try:
            for key, do in work.items():
                voice = _Voice(news, progress, getattr(key, "identifier", ""))
                context = contextvars.copy_context()
                future = pool.submit(context.run, do, max(1, jobs // threads), voice)
                future.add_done_callback(lambda future, key=key: news.put(partial(told, key, future)))  # type: ignore[misc]
            while waiting:
                news.get()()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            programs.stop()
            raise
