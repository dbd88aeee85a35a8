"""`envpack completion`, and the answers to shells that complete a command line."""

from __future__ import annotations

import click

COMPLETION_VARIABLE = "_ENVPACK_COMPLETE"  # the scripts set it when they run envpack


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
    click.echo(shell_class(context.find_root().command, {}, "envpack", COMPLETION_VARIABLE).source())


def answer_shell(cli: click.Command, instruction: str) -> int:
    """Answer a script that runs envpack: ``bash_complete`` prints candidates, ``bash_source`` the script itself."""
    from click.shell_completion import shell_complete

    try:
        return shell_complete(cli, {}, "envpack", COMPLETION_VARIABLE, instruction)
    except (LookupError, ValueError):  # the variable is set, and those of the shell are not, or make no sense
        return 1
