"""`envpack fetch`: a checked copy of published models in a folder."""

from __future__ import annotations

from pathlib import Path

import click

from envpack.cli import options
from envpack.cli.console import Console


@click.command(cls=options.GroupedCommand, short_help="Copy published models to a folder, and check every file.")
@click.argument("address")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@options.signature("Refuse models that the owner of this public key did not sign.")
@options.with_console
def command(
    address: str, directory: Path, require_signature: tuple[Path, ...], max_age: float | None, console: Console
) -> None:
    """Copy the models at ADDRESS, such as s3://bucket/models/3b5d..., to DIRECTORY, for a server that reads them there.

    Every file is compared with what was published, or signed, before DIRECTORY changes: it is created, filled if it
    is empty, or each model in it is replaced if envpack fetched it.
    """
    from envpack.workflow import fetch_models

    if address.startswith("oci://"):
        raise click.UsageError("An image is mounted as a volume; `envpack verify` checks it.")
    done = fetch_models(address, directory, console, trust=options.trust_of(require_signature, max_age))
    console.serve_with(done.command)
    console.result({"url": address} | options.as_json(done))
