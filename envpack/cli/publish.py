"""`envpack publish`: put a model repository into an object store, as a server reads it there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from envpack.cli import options
from envpack.cli.console import Console, plain
from envpack.support.text import counted


@click.command(short_help="Publish models to an object store that a server loads from.")
@click.argument("url")
@options.models
@click.option("--delete", is_flag=True, help="Remove what earlier publications sent and the repository has no more.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent and removed, and change nothing.")
@click.option("--force", is_flag=True, help="Replace objects that envpack did not publish, instead of refusing.")
@click.option(
    "--sign",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="Sign a statement about each model with this private ed25519 key, and publish it beside the model.",
)
@options.triton
@options.backends
@options.repository
@options.with_console
def command(
    url: str,
    models: tuple[str, ...],
    console: Console,
    *,
    every: bool,
    delete: bool,
    dry_run: bool,
    force: bool,
    sign: Path | None,
    triton: str,
    backends: Path | None,
    repository: Path,
) -> None:
    """Publish each MODEL, by default all, to URL: s3://bucket/models, gs://, az:// or file://.

    Environments become archives in the folders of their models. What is there already is not sent again, and the
    configurations come last, so that a server never sees half a model.
    """
    from envpack.deployment import plan_deployment, publish, published_files
    from envpack.project import open_project
    from envpack.releases import DEFAULT_RELEASE, find_release
    from envpack.repository import backends_folder
    from envpack.signing import read_signing_key
    from envpack.store import Objects, parse_location, server_address

    key = read_signing_key(sign) if sign else None
    project = open_project(repository)
    location = parse_location(url)
    names = options.model_names(project, models, every=every)
    release = find_release(triton or project.triton or DEFAULT_RELEASE)
    served_from = project.served_from or str(project.repository)  # archives do not contain it
    plan = plan_deployment(project, backends_folder(project, backends), release, names, served_from=served_from)
    with published_files(plan, console) as publication:
        console.begin(f"publish {counted(len(plan.models), 'model')} to {location}")
        published = publish(
            publication,
            Objects(location),
            only=tuple(model.name for model in plan.models) if names else (),
            dry_run=dry_run,
            delete=delete,
            force=force,
            key=key,
            progress=console,
        )
    console.end(f"{counted(len(published.sent), 'file')}, {published.size / 1e6:.1f} MB")
    for caution in publication.cautions:
        console.warned(caution)
    verb = "would " if dry_run else ""
    for path in published.sent if dry_run else ():
        console.show(f"  {verb}send {plain(path)}")
    for path in published.removed:
        console.show(f"  {verb}{'remove' if dry_run else 'removed'} {plain(path)}")
    if published.outdated and not delete:
        console.note(
            f"    {counted(len(published.outdated), 'file')} of earlier publications stay; --delete removes them"
        )
    serve = ["tritonserver", f"--model-repository={server_address(location)}"]
    console.show("serve it with:")
    console.show(plain(f"  {' '.join(serve)}"))
    document = dataclasses.asdict(published)
    console.result(
        {"url": url, "dry_run": dry_run, "command": serve, "cautions": list(publication.cautions)} | document
    )
