"""`envpack test`: run the tests of models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, plain

if TYPE_CHECKING:
    from envpack.settings import Settings
    from envpack.testing import TestRun

_REST = "envpack.cli.test"
_STDERR = 2


class _WithRest(click.Command):
    """Keeps what follows ``--`` for pytest."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, rest = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        ctx.meta[_REST] = rest
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PYTEST_ARGUMENT...]"]


@click.command(cls=_WithRest, short_help="Run the tests of models on a real server.")
@options.models
@click.option("--local", "is_local", is_flag=True, help="Run the models without a server.")
@options.settings("test")
@options.repository
@options.with_console
@click.pass_context
def command(
    context: click.Context,
    models: tuple[str, ...],
    console: Console,
    *,
    said: Settings,
    is_local: bool,
    repository: Path,
) -> int:
    """Run the tests of models by pytest: MODEL/tests and MODEL/test_*.py.

    The fixture triton_model loads each MODEL in its environment, on a real Triton server whenever one can be started.
    With --local, and where there is no server, it runs the Python models themselves. What follows -- goes to pytest.
    """
    from envpack.settings import open_project
    from envpack.testing import run_tests
    from envpack.workflow import model_names

    if said.server and is_local:
        raise click.UsageError("--server names a server, and --local wants none: give one of them.")

    def show(where: str, on_server: bool) -> None:
        console.note(f"models run {plain(where)}")
        if not on_server and not is_local:
            console.warned("no server can be started here: what only one can do is not tested; see envpack doctor")

    project = open_project(repository, said)
    done = run_tests(
        project,
        model_names(project, models),
        is_local=is_local,
        show=show,
        arguments=(*(("--quiet",) if console.quiet else ()), *context.meta[_REST]),
        output=_STDERR if console.as_json else None,
    )
    without = [model.name for model in done.models if not done.of(model.name)]
    if without:
        console.note(f"[dim]no test ran of:[/dim] {plain(', '.join(without))}")
    console.result(_document(done))
    return 0 if done.ok else 1


def _document(done: TestRun) -> dict[str, Any]:
    return {
        "ok": done.ok,
        "on_server": done.on_server,
        "where": done.where,
        "models": [{"name": model.name, "tests": list(done.of(model.name))} for model in done.models],
    }
