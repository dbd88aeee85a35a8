"""What people and programs see: progress, results and errors, each in its place.

People's text goes to standard error, one JSON document to standard output if asked for. Colours and moving parts
appear on a terminal only, and never with NO_COLOR.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from envpack.support.errors import EnvpackError
from envpack.support.progress import format_advance

if TYPE_CHECKING:
    from rich.console import Console as RichConsole, RenderableType
    from rich.status import Status

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a command ends with another exit code than 0; its fields are the keys of the JSON document."""

    message: str
    kind: str
    exit_code: int
    where: str = ""
    hint: str = ""
    details: str = ""  # file with all that a program said about it

    @classmethod
    def of(cls, error: EnvpackError) -> Failure:
        details = _kept(error.details) if error.details else ""
        return cls(error.message, error.kind, error.exit_code, error.where, error.hint, details)


class Console:
    """One command's output; also the `envpack.support.progress.Progress` that the core reports to."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self._quiet = quiet
        self._terminal: RichConsole | None = None
        self._status: Status | None = None
        self._task = ""
        self._started = 0.0

    @property
    def terminal(self) -> RichConsole:
        """The rich console on standard error; made at first use, since rich takes time to import."""
        if self._terminal is None:
            from rich.console import Console as RichConsole

            # NO_COLOR takes bold type and moving parts away too. Without a terminal there is no width to fit into,
            # and a broken line is hard to search for.
            plain = bool(os.environ.get("NO_COLOR")) or not sys.stderr.isatty()
            self._terminal = RichConsole(
                stderr=True,
                highlight=False,
                force_terminal=False if plain else None,
                soft_wrap=not sys.stderr.isatty(),
                width=None if sys.stderr.isatty() else 160,
            )
        return self._terminal

    def begin(self, task: str) -> None:
        self._task, self._started = task, time.monotonic()
        if not self._quiet and self.terminal.is_terminal:
            self._stop_status()
            self._status = self.terminal.status(_plain(task))
            self._status.start()

    def detail(self, text: str) -> None:
        if self._quiet:
            return
        if self._status is not None:
            self._status.update(f"{_plain(self._task)} [dim]({_plain(text)})[/dim]")
        else:
            self.terminal.print(f"    {_plain(text)}", style="dim")

    def advance(self, done: int, total: int, unit: str, *, size: int = 0) -> None:
        if self._status is not None:
            amount = format_advance(done, total, unit, size=size)
            self._status.update(f"{_plain(self._task)} [dim]({_plain(amount)})[/dim]")

    def end(self, outcome: str) -> None:
        self._stop_status()
        if not self._quiet:
            seconds = time.monotonic() - self._started
            took = f" [dim]{seconds:.1f} s[/dim]" if seconds >= 0.1 else ""
            self.terminal.print(f"  {_plain(self._task)} … [green]{_plain(outcome)}[/green]{took}")

    def say(self, what: RenderableType, *, even_if_quiet: bool = False) -> None:
        """Show people a line, a table or anything else that rich can draw."""
        self._stop_status()
        if even_if_quiet or not self._quiet:
            self.terminal.print(what)

    def warned(self, text: str) -> None:
        """Show what may go wrong though it need not; nothing for no text."""
        if text:
            self.say(f"[bold yellow]warning:[/bold yellow] {_plain(text)}")

    def result(self, document: dict[str, Any]) -> None:
        """Give programs the result, if ``--json`` asked for it."""
        self._stop_status()
        if self.as_json:
            print(json.dumps({"schema": SCHEMA} | document, indent=2), flush=True)  # noqa: T201

    def failed(self, failure: Failure) -> None:
        """Show the error that ends a command, to people and to programs."""
        self.show(failure)
        self.result({"error": dataclasses.asdict(failure)})

    def show(self, failure: Failure) -> None:
        """Show people an error, even when quiet: one line, then what else there is to see, then what to do."""
        self._stop_status()
        place = f"{_plain(failure.where)}: " if failure.where else ""
        first, *others = failure.message.splitlines() or [""]
        self.terminal.print(f"[bold red]error:[/bold red] {place}{_plain(first)} [dim]({failure.kind})[/dim]")
        for line in others:
            self.terminal.print(f"    {_plain(line)}", style="dim")
        if failure.details:
            self.terminal.print(f"    all that was said: {_plain(failure.details)}", style="dim")
        if failure.hint:
            self.terminal.print(f"[bold]  fix:[/bold] {_plain(failure.hint)}")

    def _stop_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def _kept(details: str) -> str:
    """Write what is too long for a terminal into the cache; the path of the file, ``""`` if it cannot be written."""
    from envpack.support.cache_locations import cache_root
    from envpack.support.replacement import write_text

    file = cache_root() / "last-error.txt"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, details)
    except OSError:
        return ""
    return str(file)


def _plain(text: str) -> str:
    """Text in which rich sees no markup."""
    from rich.markup import escape

    return escape(text)
