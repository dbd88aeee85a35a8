"""Write the manual pages: envpack(1), and one for each command, from the help texts.

python ci/man_pages.py DIRECTORY
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

import envpack
from envpack.cli.main import cli


def write_pages(folder: Path) -> list[Path]:
    """Write all pages into a folder that need not exist; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for context in _contexts(click.Context(cli, info_name="envpack")):
        file = folder / f"{context.command_path.replace(' ', '-')}.1"
        file.write_text(page(context), encoding="utf-8")
        files.append(file)
    return files


def page(context: click.Context) -> str:
    """One page, in the macros of man(7)."""
    command = context.command
    name = context.command_path.replace(" ", "-")
    summary = (command.short_help or (command.help or "").partition("\n")[0]).rstrip(".")
    synopsis = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{name.upper()}" "1" "" "envpack {envpack.__version__}" "envpack manual"',
        *(".SH NAME", f"{_roff(name)} \\- {_roff(summary)}"),
        *(".SH SYNOPSIS", f".B {_roff(context.command_path)}", _roff(synopsis)),
        *(".SH DESCRIPTION", *_paragraphs(command.help or "")),
    ]
    found = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    options = [record for option in found if (record := option.get_help_record(context))]
    if options:
        lines.append(".SH OPTIONS")
        for option, text in options:
            lines += [".TP", f"\\fB{_roff(option)}\\fR", _roff(text)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for child in _children(context):
            path = child.command_path.replace(" ", "\\-")
            lines += [".TP", f"\\fB{path}\\fR(1)", _roff(child.command.get_short_help_str(200))]
    if context.parent:
        lines += [".SH SEE ALSO", f"\\fB{context.parent.command_path.replace(' ', '-')}\\fR(1)"]
    return "\n".join(lines) + "\n"


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    for child in _children(context):
        yield from _contexts(child)


def _children(context: click.Context) -> Iterator[click.Context]:
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command
            yield click.Context(command, info_name=name, parent=context)


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text; one that starts with \\b keeps its lines, as click shows it."""
    for index, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        lines = [line.strip() for line in paragraph.splitlines()]
        if index:
            yield ".PP"
        if lines[0] == "\b":
            yield from (".nf", *map(_roff, lines[1:]), ".fi")
        else:
            yield _roff(" ".join(lines))


def _roff(text: str) -> str:
    """Text without anything that roff takes for a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
