"""`envpack dev`: models on a real server, loaded again whenever they change."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from envpack.development import Debugger, ServerNeeds
    from envpack.server import Runtime
    from envpack.settings import Project, RuntimeName, Settings


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
    from envpack.development import Session
    from envpack.repository import backends_folder
    from envpack.server import RuntimeOptions, choose_runtime
    from envpack.settings import open_project

    project = open_project(repository, said)
    names, settled = options.model_names(project, models), project.of()
    if said.image and (runtime == "process" or debug is not None):
        raise click.UsageError("--image is for a container: add --runtime docker, and give no --debug.")
    if debug is not None:
        _check_debug(project, names, runtime, debug)
        runtime = "process"

    def chosen_runtime(needs: ServerNeeds) -> Runtime:
        completion = () if needs.completes else ("--disable-auto-complete-config",)
        where = RuntimeOptions(
            runtime=runtime,
            image=settled.image,
            release=settled.triton,
            port=needs.port or settled.port,
            served_from=settled.served_from,
            extra_backends=backends_folder(project),
            environment=needs.environment,
            arguments=("--log-verbose=0", *completion),
            utilities=needs.utilities,
        )
        return choose_runtime(where, project.repository, needs.models)

    with _opened_debugger(names, debug) as debugger, view(console, debugger.address if debugger else "") as screen:
        session = Session(
            project,
            names,
            chosen_runtime,
            show=lambda: screen.show(session),
            progress=screen.progress,
            timeout=settled.timeout,
            debugger=debugger,
        )
        session.run(threading.Event())
    console.result({"models": [dataclasses.asdict(state) for state in session.states.values()]})


def _check_debug(project: Project, names: tuple[str, ...], runtime: RuntimeName, port: int) -> None:
    """Refuse what cannot be debugged, before anything is built."""
    from envpack.local import check_debug_port
    from envpack.repository import open_model

    if len(names) != 1:
        raise click.UsageError("Name the one MODEL that --debug is for; what it needs is loaded as well.")
    if runtime == "docker":
        raise click.UsageError("--debug needs --runtime process: a debugger cannot reach into the container.")
    if open_model(project.repository / names[0]).is_ensemble:
        raise click.UsageError(f"{names[0]} is an ensemble, which has no code; name one of its steps.")
    check_debug_port(port)


@contextlib.contextmanager
def _opened_debugger(names: tuple[str, ...], port: int | None) -> Iterator[Debugger | None]:
    if port is None:
        yield None
        return
    from envpack.development import Debugger
    from envpack.local import opened_instruments
    from envpack.server import find_server

    utilities = find_server().backends / "python/triton_python_backend_utils.py"
    with opened_instruments(debug_port=port) as tools:
        yield Debugger(names[0], tools, utilities)
