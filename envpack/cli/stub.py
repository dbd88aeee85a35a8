"""`envpack stub`: the executable that embeds a model's Python."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from envpack.stub.toolchain import ToolchainName


@click.command()
@click.option("--python", metavar="3.8", help="Python version; an interpreter of this machine is compiled against.")
@click.option(
    "--prefix",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Compile against the Python of this environment instead.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Folder to put it into, for example the model's. Default: the current folder.",
)
@options.triton
@options.toolchain
@options.glibc
@options.with_console
def command(
    python: str | None,
    prefix: Path | None,
    output: Path,
    triton: str,
    toolchain: ToolchainName,
    glibc: str,
    console: Console,
) -> None:
    """Compile the stub for one Python, from envpack's own sources."""
    from envpack.environment.disk import storage_errors
    from envpack.errors import InputError
    from envpack.releases import find_release
    from envpack.repository import place_stub
    from envpack.stub import STUB_NAME, build_stub, target_from_interpreter, target_from_prefix

    if (python is None) == (prefix is None):
        raise click.UsageError("Give either --python or --prefix.")
    if not output.is_dir():
        raise InputError("this folder does not exist", kind="output-missing", where=str(output), hint="create it")
    releases = [find_release(triton)] if triton else None
    target = target_from_prefix(prefix.absolute()) if prefix else target_from_interpreter(python or "")
    stub = build_stub(target, releases, toolchain=toolchain, glibc=glibc, progress=console)
    console.begin(f"place {output / STUB_NAME}")
    with storage_errors(output):
        placed = place_stub(stub.path, output)
    console.end(f"needs {stub.facts.libpython}, glibc {stub.facts.glibc}" if placed else "up to date")
    console.result(
        {
            "stub": str((output / STUB_NAME).absolute()),
            "facts": dataclasses.asdict(stub.facts),
            "compiled": stub.fresh,
            "changed": placed,
            "seconds": round(stub.seconds, 3),
        }
    )
