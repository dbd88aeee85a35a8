"""`envpack doctor`, `releases` and `completion`: about this machine, about Triton, and for shells."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class, shell_complete

from envpack.cli import options
from envpack.cli.console import Console, plain, table

COMPLETION_VARIABLE = "_ENVPACK_COMPLETE"  # the scripts set it when they run envpack
_STYLES = {"ok": "green", "warn": "yellow", "missing": "red"}
_HEADS = ("Triton", "server", "stub ABI", "Python", "NumPy 2", "glibc", "environments", "activate", "server in a wheel")


@click.command(short_help="Check what envpack can use on this machine.")
@click.option("--strict", is_flag=True, help="Exit with 1 if something is missing.")
@options.repository
@options.with_console
def doctor(repository: Path, console: Console, *, strict: bool) -> int:
    """Check compilers, Pythons, channels, servers, containers, GPUs and disks, and print a fix for what is missing."""
    from envpack.settings.project import open_project
    from envpack.workflow.doctor.host import examine

    console.begin("check this machine")
    checks = examine(open_project(repository))
    missing = sum(check.state == "missing" for check in checks)
    warned = sum(check.state == "warn" for check in checks)
    console.end(f"{missing} missing, {warned} with a warning")
    shown = table()
    for check in checks:
        fix = f"\n[bold]fix:[/bold] {plain(check.fix)}" if check.fix else ""
        style = _STYLES[check.state]
        shown.add_row(f"[{style}]{check.state}[/{style}]", plain(check.name), f"{plain(check.what)}{fix}")
    console.show(shown, even_if_quiet=bool(missing))
    console.result({"ok": not missing, "checks": checks})
    return 1 if strict and missing else 0


@click.command(short_help="List the Triton releases that envpack knows.")
@options.with_console
def releases(console: Console) -> None:
    """List the Triton releases that envpack knows, with what a stub and an execution environment depend on."""
    from envpack.settings.releases import DEFAULT_RELEASE, all_releases

    known = list(all_releases().values())
    shown = table(*_HEADS)
    for release in known:
        shown.add_row(
            release.name,
            release.server,
            release.stub_abi,
            release.python,
            "yes" if release.numpy2 else "no",
            release.glibc,
            "folder, archive" if release.takes_folders else "archive",
            "run" if release.runs_activate else "not run",
            f"nvidia-pytriton {release.wheel}" if release.wheel else "",
        )
    console.show(shown)
    console.result({"default": DEFAULT_RELEASE, "releases": known})


@click.command(short_help="Print the script that completes envpack's commands in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes envpack's commands and options in SHELL.

    \b
    bash: add to ~/.bashrc    eval "$(envpack completion bash)"
    zsh:  add to ~/.zshrc     eval "$(envpack completion zsh)"   (after compinit)
    fish: envpack completion fish > ~/.config/fish/completions/envpack.fish
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    shell_class = get_completion_class(shell)
    assert shell_class is not None  # noqa: S101 - the choices of the command are shells that click knows
    click.echo(shell_class(context.find_root().command, {}, "envpack", COMPLETION_VARIABLE).source())


def answer_shell(cli: click.Command, instruction: str) -> int:
    """Answer a script that runs envpack: ``bash_complete`` prints candidates, ``bash_source`` the script itself."""
    try:
        return shell_complete(cli, {}, "envpack", COMPLETION_VARIABLE, instruction)
    except (LookupError, ValueError):  # the variable is set, and those of the shell are not, or make no sense
        return 1
