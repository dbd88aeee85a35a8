"""`envpack inspect`: what a stub or an environment is, from its files alone, and whether it fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.preflight import Mismatch
    from envpack.stub import StubFacts


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True), metavar="PATH")
@click.option(
    "--environment",
    type=click.Path(path_type=Path, exists=True),
    help="Folder or archive of an environment: does the stub fit it? Of an archive nothing is unpacked.",
)
@click.option("--triton", default="", metavar="RELEASE", help="Does it fit this Triton release and its official image?")
@click.option(
    "--strict",
    is_flag=True,
    help="Of an environment: what cannot be proven is wrong too. Of a repository: warnings count.",
)
@options.backends
@click.option("--sbom", type=click.Path(path_type=Path), metavar="FILE", help="Write its packages as CycloneDX JSON.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=64,
    metavar="GIB",
    help="Most that an archive may hold. Default: 64.",
)
@options.with_console
def command(path: Path, environment: Path | None, triton: str, console: Console, **settings: Any) -> int:
    """Say what a stub, an environment in a folder or an archive, or a model repository is, and what does not fit.

    PATH is told apart by its content. Nothing of it is run or unpacked. Every file of an environment is compared with
    the environment's own list. The exit status is 1 if something does not fit, or is not as it was.
    """
    from envpack.archive import is_archive
    from envpack.inspection import is_repository
    from envpack.repository import looks_like_model

    backends = settings.pop("backends")
    if path.is_dir() and (looks_like_model(path) or is_repository(path)):
        from envpack.cli.inspect_repository import inspect_repository_at

        if environment or settings["sbom"]:
            raise click.UsageError("--environment is for stubs, --sbom for environments; here are models.")
        return inspect_repository_at(path, triton, backends, console, strict=settings["strict"])
    if path.is_dir() or is_archive(path):
        from envpack.cli.inspect_environment import inspect_environment_at

        if environment:
            raise click.UsageError("--environment is for stubs, and this is an environment.")
        return inspect_environment_at(path, triton, console, **settings)
    if settings["sbom"] or settings["strict"]:
        raise click.UsageError("--sbom and --strict are for environments, and this is no folder and no archive.")
    return _inspect_stub(path, environment, triton, console)


def _inspect_stub(stub: Path, environment: Path | None, triton: str, console: Console) -> int:
    from envpack.preflight import find_mismatches, image_host, read_environment_facts, read_stub_requirements
    from envpack.releases import find_release
    from envpack.stub import inspect_stub

    release = find_release(triton) if triton else None
    facts = inspect_stub(stub)
    mismatches = find_mismatches(
        read_stub_requirements(stub),
        read_environment_facts(environment.absolute()) if environment else None,
        release,
        image_host(release) if release else None,
    )
    console.say(_table(facts, mismatches))
    console.result(
        {
            "stub": str(stub.absolute()),
            "facts": dataclasses.asdict(facts),
            "mismatches": [dataclasses.asdict(mismatch) for mismatch in mismatches],
        }
    )
    return 1 if mismatches else 0


def _table(facts: StubFacts, mismatches: Sequence[Mismatch]) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_row("Triton", f"the wires of {', '.join(facts.epochs)}")
    table.add_row("Python", facts.python)
    table.add_row("NumPy", " and ".join(map(str, facts.numpy)))
    table.add_row("machine", f"{facts.machine}, glibc {facts.glibc} or newer")
    table.add_row("built", f"by envpack {facts.version} with {facts.compiler}")
    table.add_row("needs", "\n".join(facts.needs))
    for mismatch in mismatches:
        table.add_row(mismatch.kind, f"{mismatch.reason}\n{mismatch.fix}", style="red")
    return table
