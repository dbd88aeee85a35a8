"""The `envpack` command: finds the sub-command, and turns what it raises into one clear line and an exit code."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

import envpack
from envpack.cli import interrupts
from envpack.cli.console import SAID_REPOSITORY, Console, Failure
from envpack.cli.streams import echo, prepare_streams
from envpack.support.errors import EnvpackError, InputError, ModelsError, StorageError, system_error
from envpack.support.interruption import repeat_unhandled

# Each command with the module that it is in and its line in `envpack --help`, which imports none of them.
_COMMANDS = {
    "init": ("init", "Copy an example repository, or write a new model."),
    "lock": ("build", "Resolve the packages of models and write them to lockfiles."),
    "build": ("build", "Build execution environments and put them beside their models."),
    "stub": ("stub", "Compile the stub for one Python, from envpack's own sources."),
    "inspect": ("inspect", "Check a stub, an environment or models by their files."),
    "channel": ("cache", "Make a conda channel of this machine's Pythons."),
    "releases": ("about", "List the Triton releases that envpack knows."),
    "run": ("run", "Send requests to a model."),
    "dev": ("dev", "Serve models, and load them again when they change."),
    "test": ("run", "Run the tests of models on a real server."),
    "layout": ("publish", "Assemble models and backends into a tree to deploy."),
    "publish": ("publish", "Publish models to an object store or a registry that a server loads from."),
    "fetch": ("publish", "Copy published models to a folder, and check every file."),
    "verify": ("verify", "Boot a real Triton server and prove that it serves the models."),
    "kubernetes": ("kubernetes", "Print Kubernetes Jobs that build or verify models."),
    "cache": ("cache", "List, verify or remove what envpack keeps for the next build."),
    "doctor": ("about", "Check what envpack can use on this machine."),
    "completion": ("main", "Print the script that completes envpack's commands in a shell."),
}
COMPLETION_VARIABLE = "_ENVPACK_COMPLETE"  # the scripts set it when they run envpack
_BUG = 70
_EXPECTED = (EnvpackError, click.ClickException, click.Abort, KeyboardInterrupt)


class _Commands(click.Group):
    """Imports a sub-command's module only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, line = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"envpack.cli.{module}"), cmd_name)
        command.short_help = line
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """As click does, without the import of every command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the command that a misspelt one is nearest to."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} (Did you mean {near[0]!r}?)", ctx) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(envpack.__version__, prog_name="envpack")
def cli() -> None:
    """Python models on NVIDIA Triton: environment, stub and proof.

    \b
    Exit codes: 0 done · 1 verdict negative · 2 usage · 3 bad input · 4 environment failed ·
    5 stub failed · 6 server could not run · 7 file, disk or store failed · 8 yes as far as checked ·
    70 a bug in envpack · 130 interrupted
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    try:
        Path.cwd()
    except FileNotFoundError:
        what = "the working folder was removed"
        raise StorageError("file-unusable", what, "change to a folder that exists: cd", ".") from None


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes envpack's commands and options in SHELL.

    \b
    bash: add to ~/.bashrc    eval "$(envpack completion bash)"
    zsh:  add to ~/.zshrc     eval "$(envpack completion zsh)"   (after compinit)
    fish: envpack completion fish > ~/.config/fish/completions/envpack.fish
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    from click.shell_completion import get_completion_class

    shell_class = get_completion_class(shell)
    assert shell_class is not None  # noqa: S101 - the choices of the command are shells that click knows
    echo(shell_class(context.find_root().command, {}, "envpack", COMPLETION_VARIABLE).source() + "\n")


def answer_shell(cli: click.Command, instruction: str) -> int:
    """Answer a script that runs envpack: ``bash_complete`` prints candidates, ``bash_source`` the script itself."""
    from click.shell_completion import shell_complete

    try:
        return shell_complete(cli, {}, "envpack", COMPLETION_VARIABLE, instruction)
    except (LookupError, ValueError):  # the variable is set, and those of the shell are not, or make no sense
        return 1
    except OSError:  # the shell does not read it, and Python would try once more, and say so
        os._exit(1)


def main() -> None:
    prepare_streams()
    os.umask(os.umask(0) & 0o077)  # with any right of its user taken away, no program can use what it makes
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        sys.exit(answer_shell(cli, instruction))
    repeat_unhandled()
    interrupts.exit_on(signal.SIGTERM, signal.SIGHUP)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Nothing that a user can do ends in a traceback."""
    context: click.Context | None = None
    SAID_REPOSITORY.set(Path())
    try:
        try:
            interrupts.begin_work()
            with cli.make_context("envpack", list(arguments) or ["--help"]) as context:
                code = cli.invoke(context)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:  # `envpack cache` without a sub-command
            click.echo(error.format_message())
            code = 0
        finally:
            interrupts.end_work()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:  # `envpack releases | head`
        return 128 + signal.SIGPIPE
    except SystemExit:
        raise
    except BaseException as error:  # KeyboardInterrupt, and the panics of libraries in Rust, are no Exception
        if not isinstance(error, _EXPECTED) and os.environ.get("ENVPACK_TRACEBACK"):
            raise
        failure = _failure(error, arguments)
        with contextlib.suppress(OSError, EnvpackError):  # no stream is left that could be written to
            _show(error, failure, _console(context, arguments))
        return failure.exit_code


def _show(error: BaseException, failure: Failure, console: Console) -> None:
    if not isinstance(error, ModelsError):
        console.failed(failure)
        return
    from envpack.cli.each_model import show_errors

    ready = error.total - len(error.errors)
    show_errors(error.errors, f"{ready} of {error.total} models are ready, and nothing was changed", console, {})


def _failure(error: BaseException, arguments: Sequence[str] = ()) -> Failure:
    match error:
        case EnvpackError():
            return Failure.of(error)
        case click.ClickException():
            if (removed := removed_option(error)) is not None:
                return removed
            command = " ".join(["envpack", *(word for word in arguments[:1] if word in _COMMANDS)])
            if isinstance(error, click.UsageError) and error.ctx:  # click's parser of options gives none
                command = error.ctx.command_path
            return Failure(
                error.format_message().rstrip("."),
                kind="usage",
                exit_code=error.exit_code,
                hint=f"{command} --help says what it takes",
            )
        case KeyboardInterrupt() | click.Abort():
            return Failure(
                "interrupted; what was there before is as it was",
                kind="interrupted",
                exit_code=interrupts.EXIT_CODE,
                hint="run the same command again, it goes on where it can",
            )
        case _ if (explained := _explained(error)) is not None:
            return Failure.of(explained)
    return Failure(
        f"this is a bug in envpack: {type(error).__name__}: {error}",
        kind="bug",
        exit_code=_BUG,
        hint="run the command again with ENVPACK_TRACEBACK=1 and report what it prints",
    )


def _explained(error: BaseException) -> EnvpackError | None:
    """The error for what the system or Python refuse because of a user's files; None for a bug."""
    match error:
        case FileNotFoundError() if error.filename is None and "temporary directory" in str(error):  # of tempfile
            what = "no folder for temporary files can be written to"
            fix = "set TMPDIR to a folder that you can write to"
            return StorageError("not-writable", what, fix, os.environ.get("TMPDIR", "/tmp"))  # noqa: S108 - only named
        case UnicodeEncodeError() if _is_undecodable(error):
            what = "a name is not valid UTF-8, which Triton's files and envpack's records need"
            before, after = error.object[: error.start], error.object[error.start :]
            name = before.rpartition("\n")[2] + after.partition("\n")[0]  # of what may be a list of all files
            return InputError("name-not-text", what, "rename it", ascii(name))
        case RecursionError():
            what = "folders, links or data are nested more deeply than envpack can follow"
            fix = "look for a folder or a file in which the same thing is repeated"
            return InputError("nested-too-deeply", what, fix)
    from envpack.support.installation import wrong_package

    return system_error(error) or wrong_package(error)


def _is_undecodable(error: UnicodeEncodeError) -> bool:
    """Whether a text has bytes of a name that are not UTF-8, or halves of characters from JSON: lone surrogates."""
    return any("\ud800" <= char <= "\udfff" for char in error.object[error.start : error.end])


def _console(context: click.Context | None, arguments: list[str]) -> Console:
    if context is not None and isinstance(context.obj, Console):
        return context.obj
    return Console(as_json="--json" in arguments)  # the command line was refused before a command saw it


_DOCKERFILE = (
    "leave it out, and run `docker build --tag TAG DIRECTORY` on the folder of --output, which has a Dockerfile"
)
_LOCKED = (
    "leave it out; what another program chose is read from the output of `conda list --explicit --md5`, from "
    "conda-lock.yml or from pixi.lock, as the model's requirements"
)
_ALL = "leave it out: without MODEL, a command works on all models"
_JOB = "use envpack kubernetes verify, which has it"

# COMMAND --OPTION → what to do instead; a command is written as it is typed after `envpack`.
REMOVED = {
    **{f"{command} --engine": _LOCKED for command in ("lock", "build", "dev")},
    **{f"{command} --all": _ALL for command in ("build", "lock", "verify", "dev", "test", "layout", "publish")},
    **{f"{command} --no-push": "use --set push=false" for command in ("build", "lock", "run", "stub")},
    **{f"{command} --emit": f"use envpack kubernetes {command}" for command in ("build", "verify")},
    "build --sizes": "leave it out; envpack inspect MODEL/environment lists the size of each package",
    "build --image": "use envpack kubernetes build --build-image IMAGE",
    "build --secret": "use envpack kubernetes build, which has it",
    "build --memory": "use envpack kubernetes build, which has it",
    "verify --backend-config": "use --set server_arg=--backend-config=BACKEND,NAME=VALUE",
    **{f"verify {option}": _JOB for option in ("--claim", "--envpack-image", "--envpack-wheel")},
    **{
        f"verify {option}": "use --timeout SECONDS, for loads and answers"
        for option in ("--load-timeout", "--infer-timeout")
    },
    "test --triton": "leave it out: tests run on a real server whenever one can be started, and --local runs none",
    "layout --image": _DOCKERFILE,
    "layout --from": f"{_DOCKERFILE}; --build-arg BASE=IMAGE names another base image",
    "layout --pull": f"{_DOCKERFILE}; Docker fetches the base image",
}


def removed_option(error: click.ClickException) -> Failure | None:
    """What to print if an option is unknown because it was removed; None for any other error."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    path = error.ctx.command_path
    command = path.partition(" ")[2]
    instead = REMOVED.get(f"{command} {error.option_name}") or _assignment(command, error.option_name)
    if not instead:
        return None
    return Failure(f"{path} no longer has {error.option_name}", kind="usage", exit_code=error.exit_code, hint=instead)


def _assignment(command: str, option: str) -> str:
    """The words that say the same through ``--set``; ``""`` if the command has no such setting."""
    from envpack.settings.table import FIELDS

    field = next((field for field in FIELDS.values() if field.flag == option), None)
    if field is None or command.replace(" ", "-") not in field.has_set:
        return ""
    value = "true" if field.kind.form == "flag" else field.kind.metavar or "VALUE"
    return f"use --set {field.name}={value}, or say it in envpack.toml"
