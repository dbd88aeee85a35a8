"""Commands on several models: one that fails does not keep the others from being done, here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from envpack.cli.console import Console, Failure, plain
from envpack.support.errors import EnvpackError, system_error

if TYPE_CHECKING:
    from envpack.fleet.tasks import Done, Task
    from envpack.settings.table import Settings

Result = TypeVar("Result")


class EachModel:
    """Does one thing after another for models, and leaves out those for which one has failed."""

    def __init__(self, names: Sequence[str], console: Console) -> None:
        self._names = tuple(names)
        self._console = console
        self._errors: dict[str, EnvpackError] = {}

    @property
    def left(self) -> list[str]:
        return [name for name in self._names if name not in self._errors]

    def do(self, work: Callable[[str], Result]) -> list[Result]:
        """The results of work for each model that is left, without those for which it fails."""
        results = []
        for name in self.left:
            try:
                results.append(work(name))
            except (EnvpackError, OSError) as error:
                explained = error if isinstance(error, EnvpackError) else system_error(error)
                if explained is None or len(self._names) == 1:
                    raise
                self._errors[name] = explained
                self._console.note(f"  {plain(name)} … [red]failed[/red]")
        return results

    def on_cluster(self, address: str, tasks_of: Callable[[str], Sequence[Task]]) -> ClusterWork:
        """Carry out the tasks of all models on a cluster, and leave out the models for which one fails."""

        def tasks() -> Sequence[Task]:
            from envpack.fleet.tasks import combined

            return combined(task for part in self.do(tasks_of) for task in part)

        work = on_cluster(address, tasks, self._console)
        self._errors |= {name: done.error for done in work.done if done.error for name in done.task.names}
        return work

    def next_step(self, command: str, repository: Path, named: Sequence[str], said: Settings) -> None:
        """Write the command that usually follows: for the models that are left, unless these are all, as was said."""
        place = () if repository == Path() else ("--repository", str(repository))
        some = named or len(self.left) < len(self._names)
        self._console.next_step("envpack", command, *place, *said.words(command), *(self.left if some else ()))

    def finish(self, document: Mapping[str, Any], verb: str) -> int:
        """Print every error, how many models were done, and the JSON document; returns the exit status."""
        if not self._errors:
            self._console.result(dict(document))
            return 0
        errors = {name: self._errors[name] for name in self._names if name in self._errors}
        if not self.left and len(_alike(errors)) == 1:
            raise errors[self._names[0]]
        return show_errors(errors, f"{len(self.left)} of {len(self._names)} models {verb}", self._console, document)


def show_errors(errors: Mapping[str, EnvpackError], count: str, console: Console, document: Mapping[str, Any]) -> int:
    failed = []
    for names in _alike(errors):
        failure = Failure.of(errors[names[0]], names[0])
        console.show_failure(failure, of=", ".join(names))
        failed += [{"name": name, "error": failure} for name in names]
    console.show(count, even_if_quiet=True)
    console.result({**document, "failed": failed, "error": failed[0]["error"]})
    return next(iter(errors.values())).exit_code


def _alike(errors: Mapping[str, EnvpackError]) -> list[list[str]]:
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, error in errors.items():
        alike.setdefault((error.kind, error.message, error.where, error.hint), []).append(name)
    return list(alike.values())


class ClusterWork(NamedTuple):
    """What a cluster did for a command."""

    address: str  # "" for none
    done: Sequence[Done]

    def raise_first_error(self, console: Console) -> None:
        """Show all errors but the first, and raise that; nothing if there is none."""
        failed = [(done.task.label, done.error) for done in self.done if done.error]
        for label, error in failed[1:]:
            console.show_failure(Failure.of(error), of=label)
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
    from envpack.fleet.client import carry_out_all
    from envpack.fleet.cluster import parse_address

    return ClusterWork(address, carry_out_all(parse_address(address), plan(), console))
