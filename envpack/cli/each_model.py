"""Commands on several models: one that fails does not keep the others from being done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from envpack.cli.console import Console, Failure, plain
from envpack.support.errors import EnvpackError
from envpack.support.storage_errors import storage_error

Result = TypeVar("Result")


class EachModel:
    """Does one thing after another for models, and leaves out those for which one has failed.

    Args:
        names: folder names of all models of the command.
        console: gets a line for each that fails.
    """

    def __init__(self, names: Sequence[str], console: Console) -> None:
        self._names = tuple(names)
        self._console = console
        self._errors: dict[str, EnvpackError] = {}

    @property
    def left(self) -> list[str]:
        """The models for which nothing has failed yet."""
        return [name for name in self._names if name not in self._errors]

    def add_failed(self, errors: Mapping[str, EnvpackError]) -> None:
        """Leave out the models that wait for work of other models that has failed."""
        self._errors |= errors

    def do(self, work: Callable[[str], Result]) -> list[Result]:
        """The results of work for each model that is left, without those for which it fails.

        Raises:
            EnvpackError: it failed for the only model of the command.
        """
        results = []
        for name in self.left:
            try:
                results.append(work(name))
            except (EnvpackError, OSError) as error:
                explained = error if isinstance(error, EnvpackError) else storage_error(error)
                if explained is None or len(self._names) == 1:
                    raise
                self._errors[name] = explained
                self._console.note(f"  {plain(name)} … [red]failed[/red]")
        return results

    def finish(self, document: Mapping[str, Any], verb: str) -> int:
        """Print every error, how many models were done, and the JSON document; returns the exit status.

        Args:
            document: the result for the models that were done.
            verb: what was done to them, for example ``"built"``.

        Raises:
            EnvpackError: the same one for all models.
        """
        if not self._errors:
            self._console.result(dict(document))
            return 0
        alike: dict[tuple[str, ...], list[str]] = {}
        for name in filter(self._errors.__contains__, self._names):
            error = self._errors[name]
            alike.setdefault((error.kind, error.message, error.where, error.hint), []).append(name)
        if len(alike) == 1 and not self.left:
            raise self._errors[self._names[0]]
        failures = {names[0]: Failure.of(self._errors[names[0]], names[0]) for names in alike.values()}
        for names in alike.values():
            failure = failures[names[0]]
            self._console.show_failure(dataclasses.replace(failure, message=f"{', '.join(names)}: {failure.message}"))
        done = len(self.left)
        self._console.show(f"{done} of {len(self._names)} models {verb}", even_if_quiet=True)
        entries = [_entries(names, failures[names[0]]) for names in alike.values()]
        first = next(iter(failures.values()))
        failed = [entry for group in entries for entry in group]
        self._console.result({**document, "failed": failed, "error": dataclasses.asdict(first)})
        return first.exit_code


def _entries(names: Iterable[str], failure: Failure) -> list[dict[str, Any]]:
    return [{"name": name, "error": dataclasses.asdict(failure)} for name in names]
