"""`envpack dev`: models on a real server, loaded again whenever they change."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from envpack.server import RuntimeName


@click.command(short_help="Serve models, and load them again when they change.")
@options.models
@click.option(
    "--runtime",
    type=click.Choice(["process", "docker", "auto"]),
    default="process",
    show_default=True,
    help="Where the server runs.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="HTTP port on 127.0.0.1. Default: one that is free.")
@options.resolve
@options.backends
@options.repository
@options.with_console
def command(
    models: tuple[str, ...],
    console: Console,
    *,
    every: bool,
    runtime: RuntimeName,
    port: int | None,
    backends: Path | None,
    repository: Path,
    **resolve: Any,
) -> None:
    """Build each MODEL, by default all, and load it on a real server; then again whenever it changes.

    A change of code or of config.pbtxt loads the model again, and the ensembles that run it. A change of what it
    requires builds its environment before. Ctrl-C ends the server, and leaves nothing.
    """
    from envpack.cli.dev_view import view
    from envpack.development import Session
    from envpack.project import open_project
    from envpack.repository import backends_folder, named_models
    from envpack.server import RuntimeOptions, choose_runtime
    from envpack.workflow import BuildOptions, ResolveOptions

    project = open_project(repository)
    names = options.model_names(project, models, every=every)
    chosen = named_models(project.repository, names)
    build = BuildOptions(ResolveOptions(**resolve), backends=backends)
    where = RuntimeOptions(
        runtime=runtime,
        release=str(resolve["triton"]) or project.triton,
        port=port,
        served_from=project.served_from,
        extra_backends=backends_folder(project, backends),
    )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with view(console) as screen:
        session = Session(
            project,
            names,
            build,
            choose_runtime(where, project.repository, chosen),
            show=lambda: screen.show(session),
            progress=screen.progress,
        )
        with contextlib.suppress(KeyboardInterrupt):  # the way to end it
            session.run(stop)
    console.result({"models": [dataclasses.asdict(state) for state in session.states.values()]})
