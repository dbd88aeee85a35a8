"""`envpack inspect`: identify a stub, an environment or a model repository by its files, and check that it fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, plain
from envpack.support.text import counted

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.settings import Settings
    from envpack.stub import StubFacts
    from envpack.support.findings import Finding


@click.command(cls=options.GroupedCommand, short_help="Check a stub, an environment or models by their files.")
@click.argument("path", required=False, type=click.Path(), metavar="[PATH]")
@click.option(
    "--environment",
    type=click.Path(path_type=Path, exists=True),
    help="Folder or archive of an environment that the stub must fit. Archives are not unpacked.",
)
@options.settings("inspect")
@click.option(
    "--strict",
    is_flag=True,
    help="Of an environment: treat what cannot be proven as wrong. Of a repository: treat warnings as errors.",
)
@click.option(
    "--sbom",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the packages of an environment as CycloneDX JSON.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=64,
    metavar="GIB",
    help="Largest content of an archive. Default: 64.",
)
@click.option(
    "--require-signature",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="Refuse downloaded models, or a file of one, unless the owner of this public key signed them when they were "
    "published.",
)
@options.repository
@options.with_console
def command(
    path: str | None,
    environment: Path | None,
    said: Settings,
    require_signature: Path | None,
    repository: Path,
    console: Console,
    **settings: Any,
) -> int:
    """Identify a stub, an environment (folder or archive) or models, and list what is incompatible.

    PATH is a file, a folder, the name of a model, or the address of an image with models, oci://registry/name:tag;
    without it all models of the repository are inspected. Its content decides what it is. Nothing is run, and only an
    image is unpacked. Every file of an environment is compared with the environment's own list. The exit status is 1
    if something is incompatible or has changed.
    """
    if path is not None and path.startswith("oci://"):
        if environment or settings["sbom"]:
            raise click.UsageError("--environment applies to stubs and --sbom to environments; this is an image.")
        return _inspect_image(path, said, require_signature, console, strict=settings["strict"])
    place = _existing(Path(path) if path is not None else None, repository)
    if require_signature is not None:
        _require_signature(place, require_signature, console)
    return _inspect_path(place, environment, said, console, **settings)


def _inspect_path(path: Path, environment: Path | None, said: Settings, console: Console, **settings: Any) -> int:
    from envpack.archive import is_archive
    from envpack.inspection import is_repository
    from envpack.repository import looks_like_model

    if path.is_dir() and (looks_like_model(path) or is_repository(path)):
        from envpack.cli.inspect_repository import inspect_repository_at

        if environment or settings["sbom"]:
            raise click.UsageError("--environment applies to stubs and --sbom to environments; these are models.")
        return inspect_repository_at(path, said, console, strict=settings["strict"])
    if path.is_dir() or is_archive(path):
        from envpack.cli.inspect_environment import inspect_environment_at

        if environment:
            raise click.UsageError("--environment applies to stubs; this is an environment.")
        return inspect_environment_at(path, said.triton or "", console, **settings)
    if settings["sbom"] or settings["strict"]:
        raise click.UsageError("--sbom and --strict apply to environments; this is neither a folder nor an archive.")
    return _inspect_stub(path, environment, said.triton or "", console)


def _require_signature(path: Path, public_key: Path, console: Console) -> None:
    from envpack.deployment import check_signed, read_public_key

    console.begin(f"compare {path} with what was signed")
    count = check_signed(path, read_public_key(public_key))
    console.end(counted(count, "file"))


def _inspect_image(url: str, said: Settings, public_key: Path | None, console: Console, *, strict: bool) -> int:
    """Fetch the models of an image, and show every finding on them."""
    from envpack.cli.inspect_repository import inspect_repository_at
    from envpack.deployment import parse_image_address, pull_image, read_public_key
    from envpack.support.replacement import temp_dir

    address = parse_image_address(url)
    key = read_public_key(public_key) if public_key else None
    with temp_dir("image") as folder:
        (folder / "image").mkdir()
        console.begin(f"fetch oci://{address}")
        pulled = pull_image(address, folder / "image", console, key=key)
        console.end("signed" if key else "")
        return inspect_repository_at(pulled.models, said.saying(backends=pulled.backends), console, strict=strict)


def _existing(path: Path | None, repository: Path) -> Path:
    """The file or folder to inspect: a path, else a model of the repository, else the repository."""
    if path is None:
        return repository
    candidates = (path, repository / path)
    found = next((candidate for candidate in candidates if candidate.exists()), None)
    if found is None:
        raise click.UsageError(
            f"{str(path)!r} does not exist, and is no model of the repository {repository.absolute()}."
        )
    return found


def _inspect_stub(stub: Path, environment: Path | None, triton: str, console: Console) -> int:
    from envpack.inspection import (
        find_mismatches,
        image_host,
        read_environment_facts,
        read_stub_requirements,
    )
    from envpack.settings import find_release
    from envpack.stub import inspect_stub

    release = find_release(triton) if triton else None
    facts = inspect_stub(stub)
    mismatches = find_mismatches(
        read_stub_requirements(stub),
        read_environment_facts(environment.absolute()) if environment else None,
        release,
        image_host(release) if release else None,
    )
    console.show(_table(facts, mismatches))
    console.result(
        {
            "stub": str(stub.absolute()),
            "facts": dataclasses.asdict(facts),
            "mismatches": [{"kind": found.kind, "reason": found.what, "fix": found.fix} for found in mismatches],
        }
    )
    return 1 if mismatches else 0


def _table(facts: StubFacts, mismatches: Sequence[Finding]) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_row("Triton", plain(f"ABI epochs {', '.join(facts.epochs)}"))
    table.add_row("Python", plain(facts.python))
    table.add_row("NumPy", " and ".join(map(str, facts.numpy)))
    table.add_row("platform", plain(f"{facts.machine}, glibc {facts.glibc} or newer"))
    table.add_row("built", plain(f"by envpack {facts.version} with {facts.compiler}"))
    table.add_row("needs", "\n".join(map(plain, facts.needs)))
    for mismatch in mismatches:
        table.add_row(mismatch.kind, f"{plain(mismatch.what)}\n{plain(mismatch.fix)}", style="red")
    return table
