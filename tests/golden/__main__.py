"""Writes golden outputs anew.

    python -m tests.golden                  all of them, into tests/golden/files; git shows what differs
    python -m tests.golden help options     these parts only
    python -m tests.golden --to FOLDER help into another folder, as the tests do

Each part replaces its whole folder, so that a file that no case writes any more goes away.
"""

import shutil
import signal
from pathlib import Path

import click

from tests.golden.parts import FILES, PARTS, write_part


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
@click.option("--to", "folder", type=click.Path(path_type=Path), default=FILES, help="Default: tests/golden/files.")
def main(parts, folder):
    """Write the golden outputs of PARTS, by default of all."""
    # A shell that runs this in the background ignores the signal, which children inherit; one case interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in parts or PARTS:
        shutil.rmtree(folder / name, ignore_errors=True)
        write_part(name, folder / name)


if __name__ == "__main__":
    main()
