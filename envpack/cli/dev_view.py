"""How `envpack dev` shows models: one screen on a terminal, a line for each event elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from envpack.cli.console import Console, plain
from envpack.support.progress import NoProgress, Progress

if TYPE_CHECKING:
    from rich.live import Live

    from envpack.development import ModelState, Session

_COLOURS = {"ready": "green", "failed": "bold red", "building": "yellow", "loading": "yellow", "waiting": "dim"}
_LOG_LINES = 8
_ERROR_LINES = 12


class View(Protocol):
    """Shows a session."""

    progress: Progress

    def show(self, session: Session) -> None:
        """Show what is known now."""


@contextlib.contextmanager
def view(console: Console) -> Iterator[View]:
    """The view that fits where the output goes."""
    if not console.terminal.is_terminal or console.as_json:
        yield _Lines(console)
        return
    from rich.live import Live

    with Live(console=console.terminal, screen=True, auto_refresh=False) as live:
        yield _Screen(live)


class _Lines:
    """One line whenever a model becomes ready or fails."""

    def __init__(self, console: Console) -> None:
        self.progress: Progress = console
        self._console = console
        self._shown: dict[str, tuple[object, ...]] = {}

    def show(self, session: Session) -> None:
        for state in session.states.values():
            known = (state.phase, state.error, state.loads)
            if state.phase not in ("ready", "failed") or self._shown.get(state.name) == known:
                continue
            self._shown[state.name] = known
            if state.phase == "ready":
                self._console.note(f"  {plain(state.name)}: ready in {state.seconds:.2f} s at {session.url}")
            else:
                self._console.note(f"  {plain(state.name)}: [red]failed[/red]")
                for line in state.error.splitlines()[:_ERROR_LINES]:
                    self._console.note(f"    {plain(line)}")


class _Screen:
    """All models in a table, the last error, and the end of the log."""

    def __init__(self, live: Live) -> None:
        self.progress: Progress = NoProgress()
        self._live = live

    def show(self, session: Session) -> None:
        from rich.console import Group
        from rich.text import Text

        parts: list[Any] = [_table(list(session.states.values()))]
        parts += [_error(state) for state in session.states.values() if state.error]
        log = session.log().splitlines()[-_LOG_LINES:]
        parts += [Text(plain(line), style="dim", no_wrap=True, overflow="ellipsis") for line in log]
        address = session.url or "the server starts when all environments are built"
        self._live.update(Group(*parts, Text(f"{address}   Ctrl-C ends it", style="bold")), refresh=True)


def _table(states: list[ModelState]) -> Any:
    from rich.table import Table

    table = Table("model", "state", "loads", "requests", "per second", "latency", "memory", box=None)
    for state in states:
        took = f" in {state.seconds:.2f} s" if state.phase in ("ready", "failed") else ""
        memory = " + ".join(f"{size / 2**20:.0f}" for size in state.memory)
        table.add_row(
            plain(state.name),
            f"[{_COLOURS[state.phase]}]{state.phase}{took}[/]",
            str(state.loads),
            str(state.requests),
            f"{state.per_second:.1f}",
            f"{state.latency * 1e3:.2f} ms" if state.latency else "",
            f"{memory} MiB" if memory else "",
        )
    return table


def _error(state: ModelState) -> Any:
    from rich.panel import Panel
    from rich.text import Text

    lines = [plain(line) for line in state.error.splitlines()[:_ERROR_LINES]]
    return Panel(Text("\n".join(lines)), title=plain(state.name), border_style="red")
