"""Draws progress, results and errors.

The result of a command goes to standard output; progress, warnings and errors go to standard error. With
``--json`` standard output holds one JSON document and nothing else. Colours and moving parts appear on a terminal
only, and never with NO_COLOR. Without a terminal, a long step writes a line every few seconds.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import json
import math
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from envpack.cli.streams import echo
from envpack.support.errors import EnvpackError
from envpack.support.folders import path_in_shell
from envpack.support.progress import format_advance
from envpack.support.text import printable, printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console as RichConsole, ConsoleOptions, RenderableType
    from rich.status import Status
    from rich.table import Table


SCHEMA = 1
_REDRAW = 0.1  # seconds between two counts on a terminal
_SHORTEST = 0.1  # seconds; a step that is shorter shows no time
_SECONDS = re.compile(r"\d s\b")  # an outcome that holds a time of its own
_WIDTH_WITHOUT_TERMINAL = 160  # columns of a table
_WORKS_ON_MODELS = re.compile(r"\benvpack (?:build|lock|run|test|dev|verify|inspect)\b(?! --help)")
_FIXES = ("fix", "hint", "warnings")  # keys of JSON
SAID_REPOSITORY = contextvars.ContextVar("SAID_REPOSITORY", default=Path())
"""What `--repository` of this command says."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a command ends with an exit code other than 0; its fields are the keys of the JSON document."""

    message: str
    kind: str
    exit_code: int
    where: str = ""
    hint: str = ""
    details: str = ""  # file with the full output of the program that failed

    @classmethod
    def of(cls, error: EnvpackError, model: str = "") -> Failure:
        """The failure of a command, or of one of its models; each has its own file of details."""
        details = ""
        if error.details:
            from envpack.support.replacement import keep_last

            details = keep_last(f"last-error{f'-{model}' if model else ''}.txt", printable(error.details))
        return cls(error.message, error.kind, error.exit_code, error.where, error.hint, details)


class Console:
    """One command's output; also the `envpack.support.progress.Progress` that the core reports to."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._status: Status | None = None
        self._heartbeat: Heartbeat | None = None
        self._task = self._so_far = ""
        self._started = self._advanced = 0.0
        self._has_written = False

    @functools.cached_property
    def terminal(self) -> RichConsole:
        """The rich console on standard error; made at first use, since rich takes time to import."""
        return _rich_console(sys.stderr)

    @functools.cached_property
    def output(self) -> RichConsole:
        """The rich console for results: standard output, unless a JSON document goes there."""
        return self.terminal if self.as_json else _rich_console(sys.stdout)

    def begin(self, task: str) -> None:
        self._end_step()
        self._task, self._so_far, self._started = task, "", time.monotonic()
        if self.quiet:
            return
        if self.terminal.is_terminal:
            self._status = self.terminal.status(plain(task))
            self._status.start()
        else:
            self._heartbeat = Heartbeat(self._still_running, first=not self._has_written)

    def detail(self, text: str) -> None:
        if self.quiet:
            return
        if self._status is not None:
            self._status.update(f"{plain(self._task)} [dim]({plain(text)})[/dim]")
        else:
            self._write(f"    [dim]{plain(text)}[/dim]")

    def advance(self, done: int, total: int, unit: str, *, size: int = 0) -> None:
        now = time.monotonic()
        if now - self._advanced < _REDRAW:
            return
        self._advanced, self._so_far = now, f"{format_advance(done, total, unit, size=size)}, "
        if self._status is not None:
            self.detail(f"{self._so_far}{now - self._started:.0f} s")

    def end(self, outcome: str) -> None:
        self._end_step()
        if not self.quiet:
            seconds = time.monotonic() - self._started
            timed = seconds >= _SHORTEST and not _SECONDS.search(outcome)
            took = f"[dim]{seconds:.1f} s[/dim]" if timed else ""
            said = f"[green]{plain(outcome)}[/green]" if outcome else ""
            self._write(" ".join(filter(None, (f"  {plain(self._task)} …", said, took))))

    def show(self, what: RenderableType, *, even_if_quiet: bool = False) -> None:
        """Write a result: a line, a table or anything else that rich can draw."""
        self._end_step()
        if even_if_quiet or not self.quiet:
            self._wrote()
            _print(self.output, what)

    def note(self, what: RenderableType) -> None:
        """Write a remark that goes with the progress."""
        self._stop_status()
        if not self.quiet:
            self._wrote()
            _print(self.terminal, what)

    def next_step(self, *command: str) -> None:
        """Write the command that usually follows, for a person to copy; addresses in it lose their secrets."""
        from envpack.support.redaction import public_url

        if not self.as_json:
            self.note(f"[dim]next:[/dim] {plain(shlex.join(map(public_url, command)))}")

    def serve_with(self, command: Sequence[str]) -> None:
        self.show("serve it with:")
        self.show(plain(f"  {shlex.join(command)}"))

    def warned(self, *texts: str) -> None:
        for text in filter(None, texts):
            self.note(f"[bold yellow]warning:[/bold yellow] {advice(text)}")

    def result(self, document: dict[str, Any]) -> None:
        """Print the JSON document, if ``--json`` was given."""
        self._end_step()
        if self.as_json:
            echo(json.dumps(_content({"schema": SCHEMA} | document), indent=2, allow_nan=False) + "\n")

    def failed(self, failure: Failure) -> None:
        self.show_failure(failure)
        self.result({"error": failure})

    def show_failure(self, failure: Failure, of: str = "") -> None:
        """Write an error, even when quiet: one line, then further lines of its message, then what to do."""
        self._end_step()
        place = f"{plain(failure.where)}: " if failure.where else ""
        message = f"{of}: {failure.message}" if of else failure.message
        first, *others = message.splitlines() or [""]
        self.terminal.print(f"[bold red]error:[/bold red] {place}{plain(first)} [dim]({failure.kind})[/dim]")
        for line in others:
            self.terminal.print(f"    {plain(line)}", style="dim")
        if failure.details:
            self.terminal.print(f"    full output: {plain(failure.details)}", style="dim")
        if failure.hint:
            self.terminal.print(f"[bold]  fix:[/bold] {advice(failure.hint)}")

    def close(self) -> None:
        """Write no progress from now on: the command is over."""
        self._end_step()

    def _write(self, line: str) -> None:
        self._wrote()
        self.terminal.print(line)

    def _wrote(self) -> None:
        self._has_written = True
        if self._heartbeat is not None:
            self._heartbeat.put_off()

    def _still_running(self) -> None:
        seconds = time.monotonic() - self._started
        self._write(f"  [dim]{plain(self._task)} … {self._so_far}{seconds:.0f} s so far[/dim]")

    def _stop_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _end_step(self) -> None:
        self._stop_status()
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None


def _rich_console(stream: TextIO) -> RichConsole:
    """A console that draws for a terminal if the stream is one, and writes whole lines otherwise.

    NO_COLOR removes bold type and moving parts too. Without a terminal there is no width to fit into, and a broken
    line is hard to search for.
    """
    from rich.console import Console as RichConsole
    from rich.segment import Segment

    class Output(RichConsole):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:  # the one place that all text passes, wherever it comes from
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

        def on_broken_pipe(self) -> None:  # rich would end the process with 1
            raise BrokenPipeError

    is_terminal = stream.isatty()
    is_dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")  # rich draws no moving parts there
    plain = bool(os.environ.get("NO_COLOR")) or not is_terminal or is_dumb
    return Output(
        file=stream,
        highlight=False,
        emoji=False,
        force_terminal=False if plain else None,
        soft_wrap=not is_terminal,
        width=None if is_terminal else _WIDTH_WITHOUT_TERMINAL,
    )


def _print(console: RichConsole, what: RenderableType) -> None:
    """Print; without a terminal, lines do not end in the blanks that fill a table's columns."""
    for column in getattr(what, "columns", ()):  # of a table: paths and commands stay whole on a narrow terminal
        column.overflow = "fold"
    if console.is_terminal:
        console.print(what)
        return
    with console.capture() as capture:
        console.print(what)
    for line in capture.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def plain(text: str) -> str:
    """Text from outside on one line, in which rich sees no markup."""
    from rich.markup import escape

    return escape(printable_line(text))


def advice(fix: str) -> str:
    """A fix on one line, in which rich sees no markup; its commands get the repository that this command got."""
    return plain(_with_repository(fix))


def _with_repository(fix: str) -> str:
    if SAID_REPOSITORY.get() == Path() or "--repository" in fix:
        return fix
    said = path_in_shell(SAID_REPOSITORY.get())
    if said == ".":
        return fix
    return _WORKS_ON_MODELS.sub(lambda found: f"{found[0]} --repository {said}", fix)


def table(*heads: str, **options: Any) -> Table:
    """A table without lines around it, and without a first line unless it has heads."""
    from rich.table import Table

    return Table(*heads, box=None, show_header=bool(heads), **options)


def _content(value: Any, name: str = "") -> Any:
    """What JSON has of a value: of a result its fields, of a path its text, of a fix what `advice` prints.

    JSON has no numbers that are not finite: these are the strings that protobuf uses.
    """
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    match value:
        case dict():
            return {key: _content(item, key) for key, item in value.items()}
        case list() | tuple():
            return [_content(item, name) for item in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case str() if name in _FIXES:
            return _with_repository(value)
        case bytes() | Path():
            return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return value


FIRST = 1.5  # seconds until the first line of a command
SILENCE = 9.0  # seconds without a line


class Heartbeat:
    """Calls a function, in a thread of its own, whenever nothing was written for a while, until it is stopped."""

    def __init__(self, write: Callable[[], None], *, first: bool) -> None:
        self._write = write
        self._stopped = threading.Event()
        self._due = time.monotonic() + (FIRST if first else SILENCE)
        self._thread = threading.Thread(target=self._repeat, name="heartbeat", daemon=True)
        self._thread.start()

    def put_off(self) -> None:
        self._due = time.monotonic() + SILENCE

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._stopped.wait(max(0.0, self._due - time.monotonic())):
            if time.monotonic() >= self._due:
                self.put_off()
                self._write()
