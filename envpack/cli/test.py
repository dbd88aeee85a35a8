"""`envpack test`: run the tests of models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from envpack.settings import Settings
    from envpack.testing import TestedModel, TestRun

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


@click.command(cls=_WithRest, short_help="Run the tests of models, without a server or on one.")
@options.models
@click.option("--triton", "on_server", is_flag=True, help="Run the models on a real Triton server.")
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
    on_server: bool,
    repository: Path,
) -> None:
    """Run the tests of models by pytest: MODEL/tests and MODEL/test_*.py.

    The fixture triton_model loads each MODEL in its environment under envpack's stub, or with --triton on a real
    server. What follows -- goes to pytest.
    """
    from envpack.repository import named_models
    from envpack.server import find_server
    from envpack.settings import open_project
    from envpack.testing import find_tests, run_tests
    from envpack.workflow import model_names

    if said.server and not on_server:
        raise click.UsageError("--server needs --triton.")
    project = open_project(repository, said)
    chosen = model_names(project, models)
    found = find_tests(named_models(project.repository, chosen))
    program = find_server(project.of().server).executable if on_server else None
    done = run_tests(
        project.repository,
        found,
        on_server=on_server,
        server=program,
        timeout=project.of().timeout,
        arguments=(*(("--quiet",) if console.quiet else ()), *context.meta[_REST]),
        output=_STDERR if console.as_json else None,
    )
    without = [model.name for model in found if not model.paths]
    if without:
        console.note(f"[dim]without tests:[/dim] {', '.join(without)}")
    console.result(_document(done, found, on_server=on_server))
    if not done.ok:
        sys.exit(1)


def _document(done: TestRun, found: tuple[TestedModel, ...], *, on_server: bool) -> dict[str, Any]:
    return {
        "ok": done.ok,
        "on_server": on_server,
        "models": [
            {
                "name": model.name,
                "tests": [test for test in done.tests if test["id"].partition("/")[0] == model.name],
            }
            for model in found
        ],
    }
