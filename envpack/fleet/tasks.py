"""What travels between a caller and the workers: work and products, as data; no environment and no stub."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import envpack
from envpack.store.shared import open_store
from envpack.support.errors import EnvpackError
from envpack.workflow.recipe import Made

if TYPE_CHECKING:
    from envpack.store.shared import SharedStore
    from envpack.support.progress import Progress


class Work(Protocol):
    """A function of `envpack.workflow` with its arguments, which a worker calls."""

    def __call__(self, *, progress: Progress, store: SharedStore | None) -> Made:
        """Make something; it is in the cache of this machine and, if there is one, in the store."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of work."""

    key: str  # name of what it makes; a cluster carries out tasks with the same key once
    names: tuple[str, ...]  # the models or stubs that need it
    work: Work  # what to do
    needs: tuple[str, ...] = ()  # what a worker must have, as `envpack.workflow.recipes` names it
    store: str = ""  # address of the store that receives what is made, ``""`` for the cache of the worker's machine
    makes_files: bool = True  # whether its result is more than what a `Product` contains
    version: str = envpack.__version__  # envpack's version

    @property
    def label(self) -> str:
        more = f" (and {len(self.names) - 1} more)" if len(self.names) > 1 else ""
        return f"{self.names[0]}{more}"

    def carry_out(self, progress: Progress) -> Made:
        return self.work(progress=progress, store=open_store(self.store, push=True) if self.store else None)


@dataclass(frozen=True, kw_only=True)
class Product(Made):
    """What a worker reports of a task."""

    error: EnvpackError | None = None  # that ended it
    seconds: float = 0.0  # how long it took
    worker: str = ""  # name of the worker
    host: str = ""  # name of its machine


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a task ended."""

    task: Task
    product: Product  # what the worker reported
    attempts: int  # how often it was started; more than once if a worker was lost
    error: EnvpackError | None = None  # why it failed, ``None`` if it did not

    def as_json(self) -> dict[str, object]:
        return {
            "task": self.task.key,
            "models": list(self.task.names),
            "worker": self.product.worker,
            "host": self.product.host,
            "seconds": round(self.product.seconds, 3),
            "attempts": self.attempts,
            "made": self.product.fresh,
            "digests": self.product.digests,
            "error": self.error.kind if self.error else "",
        }


def task_key(kind: str, made: str, *parts: object) -> str:
    """Key of a task: what it makes, and a digest of everything else that decides its result.

    >>> task_key("environment", "0f3a", "24.10", "auto")
    'envpack-environment-0f3a-2c4b7bfa'
    """
    digest = hashlib.sha256(repr((envpack.__version__, *parts)).encode()).hexdigest()
    return f"envpack-{kind}-{made}-{digest[:8]}"


def combined(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """One task for each key, with the names of all that need it."""
    found: dict[str, Task] = {}
    for task in tasks:
        before = found.get(task.key)
        found[task.key] = dataclasses.replace(before, names=(*before.names, *task.names)) if before else task
    return tuple(found.values())
