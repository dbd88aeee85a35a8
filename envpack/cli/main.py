"""The `envpack` command: finds the sub-command, and turns what it raises into one clear line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys

import click

import envpack
from envpack.cli.console import Console
from envpack.errors import EnvpackError

_COMMANDS = ("init", "build", "stub", "verify")
_BUG = 70
_INTERRUPTED = 130


class _Commands(click.Group):
    """Imports a sub-command's module only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"envpack.cli.{cmd_name}").command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(envpack.__version__, prog_name="envpack")
def cli() -> None:
    """Python models on NVIDIA Triton: environment, stub and proof.

    \b
    Exit codes: 0 done · 1 verdict negative · 2 usage · 3 bad input · 4 environment failed ·
    5 stub failed · 6 server could not run · 70 a bug in envpack
    """  # noqa: D301 - \b is click's mark for lines that stay as they are


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Nothing that a user can do ends in a traceback."""
    context: click.Context | None = None
    try:
        with cli.make_context("envpack", list(arguments)) as context:
            code = cli.invoke(context)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _console(context).failed("interrupted; nothing half-written was left", exit_code=_INTERRUPTED)
        return _INTERRUPTED
    except EnvpackError as error:
        _console(context).failed(
            error.message, where=error.where, hint=error.hint, kind=error.kind, exit_code=error.exit_code
        )
        return error.exit_code
    except Exception as error:
        if os.environ.get("ENVPACK_TRACEBACK"):
            raise
        _console(context).failed(
            f"this is a bug in envpack: {type(error).__name__}: {error}",
            hint="run the command again with ENVPACK_TRACEBACK=1 and report what it prints",
            kind="bug",
            exit_code=_BUG,
        )
        return _BUG


def _console(context: click.Context | None) -> Console:
    return context.obj if context is not None and isinstance(context.obj, Console) else Console()
