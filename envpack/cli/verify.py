"""`envpack verify`: boot the server, ask the models, give a verdict."""

from __future__ import annotations

from pathlib import Path

import click

from envpack.cli import options
from envpack.cli.console import Console

_SECONDS = click.FloatRange(min=0, min_open=True)


@click.command(short_help="Boot a real Triton server and prove that it serves the models.")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option(
    "--runtime",
    type=click.Choice(["auto", "process"]),
    default="auto",
    help="How to run the server. Default: auto, at present always a process of this machine.",
)
@click.option(
    "--server", type=click.Path(path_type=Path), help="The tritonserver to boot. Default: the one found here."
)
@click.option("--port", type=click.IntRange(1, 65535), help="HTTP port on 127.0.0.1. Default: a free one.")
@click.option(
    "--load-timeout",
    type=_SECONDS,
    default=120,
    metavar="SECONDS",
    help="How long a model may take to load. Default: 120.",
)
@click.option(
    "--infer-timeout", type=_SECONDS, default=30, metavar="SECONDS", help="How long an answer may take. Default: 30."
)
@options.repository
@options.with_console
def command(
    models: tuple[str, ...],
    runtime: str,  # noqa: ARG001 - there is one so far
    server: Path | None,
    port: int | None,
    load_timeout: float,
    infer_timeout: float,
    repository: Path,
    console: Console,
) -> int:
    """Boot a real Triton server and prove that it serves each MODEL, by default all of the repository."""
    from envpack.cli.verdict_view import draw
    from envpack.verification import VerifyOptions, verify

    choices = VerifyOptions(server=server, port=port, load_timeout=load_timeout, infer_timeout=infer_timeout)
    verdict = verify(repository.absolute(), models, options=choices, progress=console)
    for part in draw(verdict):
        console.say(part, even_if_quiet=not verdict.ok)
    console.result({"verdict": verdict.to_json()})
    return 0 if verdict.ok else 1
