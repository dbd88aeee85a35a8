"""`envpack dev`: models on a real server, loaded again whenever they change, and how that is shown: one screen on a
terminal, a line for each event elsewhere.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, plain
from envpack.support.progress import SILENT, Progress, format_advance
from envpack.support.text import printable_line

if TYPE_CHECKING:
    from rich.console import Console as RichConsole, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.segment import Segment
    from rich.text import Text

    from envpack.development.models import ModelState
    from envpack.development.session import Session
    from envpack.settings.table import RuntimeName, Settings

_MOST_NAMED = 3  # files
_STYLES = {
    "ready": "green",
    "failed": "bold red",
    "building": "yellow",
    "loading": "yellow",
    "attaching": "bold magenta",
    "waiting": "dim",
    "removed": "red",
}
_WORDS = {"attaching": "waits for a debugger"}
_WIDE = 100  # columns from which all figures have room
_NARROW = 60  # columns below which only the most important ones have
_LOG_SHARE = 4  # a part of the height that errors leave to the log
_ERROR_LINES = 20
_LOG_HEAD = re.compile(r"(?P<level>[IWEF])\d{4} (?P<time>\d\d:\d\d:\d\d)\.\d+ \d+ (?P<place>[\w.]*:\d+)\] ?")
_TABLES = "+|"  # begin lines of the tables that a server writes at its start
_LEVELS = {"W": "yellow", "E": "red", "F": "red"}
_NOISE = (  # what is nothing to worry about, or shown as the model's error
    "envpack-stub {",
    "ignore version directory",
    "pinned memory pool",
    "CudaDriverHelper",
    "Failed to create instance",
    "failed to load '",
    "Failed to process the request(s)",
)


@click.command(cls=options.GroupedCommand)
@options.models
@options.debug(
    "Let the first instance of MODEL wait for a debugger (debugpy) on this port of this machine, by default 5678, "
    "before it imports the model; again after each load. One MODEL must be named."
)
@click.option(
    "--runtime",
    type=click.Choice(["process", "docker", "auto"]),
    default="process",
    help="Where the server runs. Default: process.",
)
@options.settings("dev")
@options.repository
@options.with_console
def dev(
    models: tuple[str, ...],
    said: Settings,
    console: Console,
    *,
    debug: int | None,
    runtime: RuntimeName,
    repository: Path,
) -> None:
    """Build each MODEL, by default all, and load it on a real server; then again whenever it changes.

    A change of code or of config.pbtxt loads the model again, and the ensembles that run it. A change of what it
    requires builds its environment before. Ctrl-C ends the server, and leaves nothing.
    """
    from envpack.development.debugger import opened_debugger
    from envpack.development.session import Session
    from envpack.settings.project import open_project
    from envpack.workflow.project import model_names

    project = open_project(repository, said)
    names = model_names(project, models)
    of_container = {"--image": said.image, "memory": said.memory, "shm_size": said.shm_size}
    option = next((name for name, value in of_container.items() if value), "")
    if option and (runtime == "process" or debug is not None):
        raise click.UsageError(f"{option} is for a container: add --runtime docker, and give no --debug.")
    if debug is not None and runtime == "docker":
        raise click.UsageError("--debug needs --runtime process: a debugger cannot reach into the container.")
    with (
        opened_debugger(project, names, debug) as debugger,
        view(console, debugger.address if debugger else "") as screen,
    ):
        session = Session(
            project,
            names,
            runtime if debug is None else "process",
            show=lambda: screen.show(session),
            progress=screen.progress,
            timeout=project.of().timeout,
            debugger=debugger,
        )
        session.run(threading.Event())
    console.result({"models": list(session.states.values())})


@contextlib.contextmanager
def view(console: Console, debugger: str = "") -> Iterator[_Lines | _Screen]:
    if not console.terminal.is_terminal or console.as_json or console.quiet:
        yield _Lines(console, debugger)
        return
    from rich.live import Live

    with Live(console=console.terminal, screen=True, auto_refresh=False) as live:
        yield _Screen(live, debugger)


class _Lines:
    """One line whenever a model becomes ready, fails or is removed; errors alone if the console is quiet."""

    def __init__(self, console: Console, debugger: str) -> None:
        self.progress: Progress = console if not console.quiet else SILENT
        self._console = console
        self._debugger = debugger
        self._shown: dict[str, tuple[object, ...]] = {}
        self._models: set[str] = set()  # at the last call

    def show(self, session: Session) -> None:
        self._once("", (session.trouble,), [plain(line) for line in session.trouble.splitlines()])
        states = dict(session.states)
        for name in self._models - states.keys():  # another one of its name is shown from the beginning
            for known in (name, f"{name} writes", f"request to {name}"):
                self._shown.pop(known, None)
            if not self._console.quiet:
                self._console.terminal.print(f"  {plain(name)}: [red]removed[/red]")
        self._models = set(states)
        for state in states.values():
            self._once(state.name, (state.phase, state.error, state.loads), list(self._lines(state, session.url)))
            self._once(f"{state.name} writes", (min(len(state.own_writes), _MOST_NAMED + 1),), _own_writes(state))
            if state.request_error:
                lines = [f"{plain(state.name)}: [red]a request failed[/red]", *_indented(state.request_error)]
                self._once(f"request to {state.name}", (state.request_error, state.loads), lines)

    def _lines(self, state: ModelState, url: str) -> Iterator[str]:
        match state.phase:
            case "ready" if not self._console.quiet:
                yield f"{plain(state.name)}: ready in {state.seconds:.2f} s at {url}"
            case "attaching" if not self._console.quiet:
                yield f"{plain(state.name)}: waits for a debugger at {self._debugger}"
            case "failed" | "removed":
                yield f"{plain(state.name)}: [red]{state.phase}[/red]"
                yield from _indented(state.error)

    def _once(self, name: str, known: tuple[object, ...], lines: list[str]) -> None:
        if not lines or self._shown.get(name) == known:
            return
        self._shown[name] = known
        for line in lines:
            self._console.terminal.print(f"  {line}")


def _own_writes(state: ModelState) -> list[str]:
    """Which changes do not load a model."""
    if not state.own_writes:
        return []
    names = ", ".join(state.own_writes[:_MOST_NAMED]) + (", …" if len(state.own_writes) > _MOST_NAMED else "")
    return [f"{plain(state.name)}: {plain(names)}: written by the model, which does not load it again"]


def _indented(error: str) -> list[str]:
    return [f"  {plain(line)}" for line in error.splitlines()[:_ERROR_LINES]]


class _Screen:
    """All models in a table, the errors, and the end of the log; what a build does is part of it."""

    def __init__(self, live: Live, debugger: str) -> None:
        self.progress: Progress = self
        self._live = live
        self._debugger = debugger
        self._task = self._step = ""
        self._session: Session | None = None

    def show(self, session: Session) -> None:
        self._session = session
        self._live.update(_Page(session, self._debugger, self._step), refresh=True)

    def begin(self, task: str) -> None:
        self._task = task
        self._set(task)

    def detail(self, text: str) -> None:
        self._set(f"{self._task} ({text})")

    def advance(self, done: int, total: int, unit: str, *, size: int = 0) -> None:
        self.detail(format_advance(done, total, unit, size=size))

    def end(self, outcome: str) -> None:  # noqa: ARG002 - the state of the model says it
        self._set("")

    def _set(self, step: str) -> None:
        self._step = step
        if self._session is not None:
            self.show(self._session)


class _Page:
    """What the screen shows, as high as the terminal: errors leave some lines to the log, which gets the rest."""

    def __init__(self, session: Session, debugger: str, step: str) -> None:
        self._session, self._debugger, self._step = session, debugger, step

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        from rich.console import Group
        from rich.rule import Rule
        from rich.segment import Segment

        width, height = console.size
        states = list(self._session.states.values())
        fixed = options.update(height=None)
        top = console.render_lines(Group(*self._head(), _table(states, width)), fixed)
        room = height - len(top) - 2
        errors: list[list[Segment]] = []
        found = list(_errors(self._session, states))
        for number, error in enumerate(found):
            share = (room - room // _LOG_SHARE - len(errors)) // (len(found) - number)
            errors += _panel_lines(console, fixed, error, share)
        rest = height - len(top) - len(errors) - 1
        shown = [*top, *errors]
        if rest > 1:
            shown += console.render_lines(Rule("log", style="dim", align="left"), fixed)
            for text in _log_lines(self._session.log(), rest):
                shown += console.render_lines(text, fixed)[:1]
        for number, line in enumerate(shown[:height]):
            if number:
                yield Segment.line()
            yield from line

    def _head(self) -> Iterable[Text]:
        from rich.text import Text

        address = self._session.url or "the server starts when all environments are built"
        yield _line(Text.assemble(("envpack dev  ", "bold"), (address, "bold cyan"), ("   Ctrl-C ends it", "dim")))
        if self._debugger:
            yield _line(Text(f"debugger at {self._debugger}", style="magenta"))
        for state in list(self._session.states.values()):
            for line in _own_writes(state):
                yield _line(Text.from_markup(line, style="dim"))
        yield _line(Text(printable_line(self._step), style="yellow"))


@dataclass(frozen=True)
class _Error:
    """An error, with what stands above and below it."""

    title: str
    text: str
    note: str = ""


def _errors(session: Session, states: list[ModelState]) -> Iterator[_Error]:
    if session.trouble:
        yield _Error("server", session.trouble)
    for state in states:
        if state.error:
            yield _Error(state.name, state.error, "the server goes on with what it had" if state.serves else "")
        elif state.request_error:
            yield _Error(f"{state.name}: the last request that failed", state.request_error)


def _line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _table(states: list[ModelState], width: int) -> Any:
    from rich.table import Table

    wide = width >= _WIDE
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("model", overflow="ellipsis", no_wrap=True)
    table.add_column("state", overflow="ellipsis", no_wrap=True, min_width=8)
    for title in ("loads", "requests") if wide else ():
        table.add_column(title, justify="right", no_wrap=True)
    narrow = width < _NARROW
    for title in ("per second", "memory") if narrow else ("per second", "latency", "memory"):
        table.add_column(title, justify="right", no_wrap=True, overflow="ellipsis")
    for state in states:
        took = f" in {state.seconds:.2f} s" if state.phase in ("ready", "failed") and state.seconds else ""
        failed = f" [red]{state.failures} failed[/]" if state.failures else ""
        counts = (str(state.loads), str(state.requests)) if wide else ()
        table.add_row(
            plain(state.name),
            f"[{_STYLES[state.phase]}]{_WORDS.get(state.phase, state.phase)}{took}[/]",
            *counts,
            f"{state.per_second:.1f}{failed}" if state.serves else "",
            *(() if narrow else (f"{state.latency * 1e3:.2f} ms" if state.latency else "",)),
            _memory(state.memory),
        )
    return table


def _memory(sizes: tuple[int, ...]) -> str:
    """The memory of each instance, of many instances the sum."""
    megabytes = [round(size / 2**20) for size in sizes]
    if len(megabytes) > 3:
        return f"{len(megabytes)} x {round(sum(megabytes) / len(megabytes))} MiB"
    return " + ".join(map(str, megabytes)) + " MiB" if megabytes else ""


def _panel_lines(console: RichConsole, options: ConsoleOptions, error: _Error, most: int) -> list[list[Segment]]:
    from rich.panel import Panel
    from rich.text import Text

    lines = [printable_line(line) for line in error.text.splitlines()]
    shown = Text("\n").join(
        Text(line, style="bold" if not number else "" if _is_place(line) else "dim")
        for number, line in enumerate(lines)
    )
    aligned: dict[str, Any] = {"title_align": "left", "subtitle_align": "left"}
    panel = Panel(shown, title=plain(error.title), subtitle=error.note or None, border_style="red", **aligned)
    drawn = console.render_lines(panel, options)
    return drawn if len(drawn) <= most else [*drawn[: max(1, most - 1)], drawn[-1]]


def _is_place(line: str) -> bool:
    return line.startswith("    ") or re.match(r"\S+:\d+ in ", line) is not None


def _log_lines(log: str, count: int) -> list[Text]:
    """The last lines that models wrote, and warnings and errors of the server."""
    from rich.text import Text

    shown = []
    for line in log.splitlines():
        head = _LOG_HEAD.match(line)
        if not line.strip() or line[0] in _TABLES or any(noise in line for noise in _NOISE):
            continue
        if head is None:
            shown.append(_line(Text(printable_line(line))))
        elif head["level"] in _LEVELS or not head["place"].partition(":")[0].endswith(".cc"):
            message = line[head.end() :].strip().removeprefix('"').removesuffix('"')
            text = printable_line(f"{head['time']} {head['place']}  {message}")
            shown.append(_line(Text(text, style=_LEVELS.get(head["level"], ""))))
    return shown[-count:]
