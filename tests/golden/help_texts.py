"""The help of every command, 80 columns wide."""

import click

from envpack.cli.main import cli


def texts(place):
    """`--help` of each command, by the words of the command."""
    return {f"{'-'.join(words) or 'envpack'}.txt": _help(place, words) for words in _commands(cli, ())}


def _commands(group, words):
    """The words of a command and of all below it."""
    yield words
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield from _commands(command, (*words, name)) if isinstance(command, click.Group) else [(*words, name)]


def _help(place, words):
    ended = place.envpack(*words, "--help")
    assert (ended.code, ended.err) == (0, ""), ended
    return ended.out
