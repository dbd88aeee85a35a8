"""`envpack publish`: put a model repository into an object store or a registry, as a server reads it there."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console, plain
from envpack.support.text import counted

if TYPE_CHECKING:
    from envpack.deployment import Deployment, SigningKey
    from envpack.settings import Settings


@click.command(
    cls=options.GroupedCommand, short_help="Publish models to an object store or a registry that a server loads from."
)
@click.argument("url")
@options.models
@click.option("--delete", is_flag=True, help="Remove what earlier publications sent and the repository has no more.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent and removed, and change nothing.")
@click.option("--force", is_flag=True, help="Replace objects that envpack did not publish, instead of refusing.")
@click.option(
    "--sign",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="Sign a statement about each model, or the image, with this private ed25519 key, and publish it too.",
)
@click.option(
    "--base",
    default="",
    metavar="IMAGE",
    help="Base image of oci://, by its digest: registry/name@sha256:... Default: none, for an image volume.",
)
@options.settings("publish")
@options.repository
@options.with_console
def command(
    url: str,
    models: tuple[str, ...],
    said: Settings,
    console: Console,
    *,
    delete: bool,
    dry_run: bool,
    force: bool,
    sign: Path | None,
    base: str,
    repository: Path,
) -> None:
    """Publish each MODEL, by default all, to URL: s3://bucket/models, gs://, az://, file:// or oci://registry/name:tag.

    In an object store, environments become archives in the folders of their models; configurations come last, so
    that a server never sees half a model. In a registry, they become layers of an image. What is there already is not
    sent again.
    """
    from envpack.deployment import MODELS_ON_SERVER, plan_deployment, read_signing_key
    from envpack.settings import open_project

    as_image = url.startswith("oci://")
    if as_image and (delete or force):
        raise click.UsageError("--delete and --force are for object stores; a tag of an image is always replaced.")
    if not as_image and (base or said.served_from):
        raise click.UsageError("--base and --served-from are for images, oci://registry/name:tag.")
    key = read_signing_key(sign) if sign else None
    project = open_project(repository, said)
    names = options.model_names(project, models)
    # The archives in an object store do not contain the path.
    otherwise = MODELS_ON_SERVER if as_image else str(project.repository)
    plan = plan_deployment(project, names, served_from=otherwise)
    if as_image:
        _publish_image(plan, url, base, console, dry_run=dry_run, key=key)
    else:
        only = tuple(model.name for model in plan.models) if names else ()
        _publish_objects(plan, url, only, console, dry_run=dry_run, delete=delete, force=force, key=key)


def _publish_objects(
    plan: Deployment,
    url: str,
    only: tuple[str, ...],
    console: Console,
    *,
    dry_run: bool,
    delete: bool,
    force: bool,
    key: SigningKey | None,
) -> None:
    from envpack.deployment import publish, published_files
    from envpack.store import Objects, parse_location, server_address

    location = parse_location(url)
    with published_files(plan, console) as publication:
        console.begin(f"publish {counted(len(plan.models), 'model')} to {location}")
        published = publish(
            publication,
            Objects(location),
            only=only,
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


def _publish_image(
    plan: Deployment, url: str, base: str, console: Console, *, dry_run: bool, key: SigningKey | None
) -> None:
    from envpack.deployment import parse_image_address, publish_image

    address, below = parse_image_address(url, tagged=True), parse_image_address(base, pinned=True) if base else None
    published = publish_image(plan, address, base=below, dry_run=dry_run, key=key, progress=console)
    for caution in published.cautions:
        console.warned(caution)
    for title in published.sent:
        console.show(f"  {'would send' if dry_run else 'sent'} {plain(title)}")
    if published.unchanged:
        console.note(f"    the registry {'has' if dry_run else 'had'} {counted(published.unchanged, 'layer')} already")
    console.show(plain(published.image))
    console.result({"url": url, "dry_run": dry_run} | dataclasses.asdict(published))
