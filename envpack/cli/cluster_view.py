"""`--on CLUSTER`: the part of a command that a cluster carries out, and what is shown of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from envpack.cli.console import Console, Failure
from envpack.support.errors import EnvpackError

if TYPE_CHECKING:
    from envpack.fleet import Done, Task


@dataclasses.dataclass(frozen=True)
class ClusterWork:
    """What a cluster did for a command."""

    address: str  # "" for none
    done: Sequence[Done]

    @property
    def failed(self) -> dict[str, EnvpackError]:
        """The error of each model or stub that was not made."""
        return {name: done.error for done in self.done if done.error for name in done.task.names}

    @property
    def locks(self) -> dict[str, str]:
        """The text of the lock of each model that a worker resolved."""
        return {name: done.product.lock for done in self.done if done.product.lock for name in done.task.names}

    def raise_first_error(self, console: Console) -> None:
        """Show all errors but the first, and raise that; nothing if there is none."""
        failed = [(done.task.label, done.error) for done in self.done if done.error]
        for label, error in failed[1:]:
            console.show_failure(_failure(label, error))
        if failed:
            raise failed[0][1]

    def as_json(self) -> dict[str, Any]:
        """Who made what, where, and for how long; nothing without a cluster."""
        if not self.address:
            return {}
        return {"cluster": {"address": self.address, "tasks": [done.as_json() for done in self.done]}}


def on_cluster(address: str, plan: Callable[[], Sequence[Task]], console: Console) -> ClusterWork:
    """Carry out tasks on a cluster, none without an address; a wrong one is an error before they are planned."""
    if not address:
        return ClusterWork("", ())
    from envpack.fleet import carry_out_all, parse_address

    cluster = parse_address(address)
    return ClusterWork(address, carry_out_all(cluster, plan(), console))


def _failure(label: str, error: EnvpackError) -> Failure:
    failure = Failure.of(error)
    return dataclasses.replace(failure, message=f"{label}: {failure.message}")
