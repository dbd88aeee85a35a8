"""`envpack dev`: models on a real server, loaded again whenever they change."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from envpack.settings import RuntimeName, Settings


@click.command(cls=options.GroupedCommand, short_help="Serve models, and load them again when they change.")
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
def command(
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
    from envpack.cli.dev_view import view
    from envpack.development import Session, opened_debugger, runtime_chooser
    from envpack.settings import open_project
    from envpack.workflow import model_names

    project = open_project(repository, said)
    names = model_names(project, models)
    if said.image and (runtime == "process" or debug is not None):
        raise click.UsageError("--image is for a container: add --runtime docker, and give no --debug.")
    if debug is not None and runtime == "docker":
        raise click.UsageError("--debug needs --runtime process: a debugger cannot reach into the container.")
    choose = runtime_chooser(project, runtime if debug is None else "process")
    with (
        opened_debugger(project, names, debug) as debugger,
        view(console, debugger.address if debugger else "") as screen,
    ):
        session = Session(
            project,
            names,
            choose,
            show=lambda: screen.show(session),
            progress=screen.progress,
            timeout=project.of().timeout,
            debugger=debugger,
        )
        session.run(threading.Event())
    console.result({"models": [dataclasses.asdict(state) for state in session.states.values()]})
