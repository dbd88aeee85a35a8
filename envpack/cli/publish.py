"""`envpack layout`, `publish` and `fetch`: models where servers load them from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console, plain
from envpack.support.text import counted

if TYPE_CHECKING:
    from envpack.settings.table import Settings
    from envpack.workflow.publish import PublishedImage, PublishedObjects


@click.command(cls=options.GroupedCommand)
@options.models
@click.option(
    "--output",
    type=options.FOLDER,
    required=True,
    metavar="DIRECTORY",
    help="Where to put the tree. One that envpack made is replaced.",
)
@options.settings("layout")
@options.repository
@options.with_console
def layout(models: tuple[str, ...], said: Settings, output: Path, repository: Path, console: Console) -> None:
    """Assemble each MODEL, by default all, with the backends that they name into one tree.

    Prints the command that serves it. The Dockerfile in the tree makes an image that serves it.
    """
    from envpack.settings.project import open_project
    from envpack.support.folders import whole_path
    from envpack.workflow.project import model_names
    from envpack.workflow.publish import lay_out

    project = open_project(repository, said)
    done = lay_out(project, model_names(project, models), output, console)
    console.warned(*done.cautions)
    console.serve_with(done.docker)
    console.result({"layout": whole_path(output), **vars(done)})


@click.command(cls=options.GroupedCommand)
@click.argument("url")
@options.models
@click.option("--delete", is_flag=True, help="Remove what earlier publications sent and the repository no longer has.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent and removed, and change nothing.")
@click.option("--force", is_flag=True, help="Send everything again, and replace objects that envpack did not publish.")
@click.option(
    "--prune",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of an address with {digest}, keep the newest N publications, and remove the others.",
)
@click.option(
    "--sign",
    type=options.FILE,
    multiple=True,
    metavar="KEY",
    help="Sign a statement about each model, or the image, with this private ed25519 key, and publish it. Repeatable.",
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
def publish(
    url: str,
    models: tuple[str, ...],
    said: Settings,
    console: Console,
    *,
    delete: bool,
    dry_run: bool,
    force: bool,
    prune: int | None,
    sign: tuple[Path, ...],
    base: str,
    repository: Path,
) -> None:
    """Publish each MODEL, by default all, to URL: s3://bucket/models/{digest}, gs://, az://, file:// or
    oci://registry/name:tag.

    In an object store, environments become archives in the folders of their models. {digest} becomes the digest of
    what is published, so that no publication replaces another one. In a registry, environments become layers of an
    image. What is there already is not sent again.
    """
    from envpack.settings.project import open_project
    from envpack.workflow.project import model_names
    from envpack.workflow.publish import publish_objects, publish_to_registry

    as_image = url.startswith("oci://")
    if as_image and (delete or force or prune):
        raise click.UsageError(
            "--delete, --force and --prune are for object stores; a tag of an image is always replaced."
        )
    if not as_image and (base or said.served_from):
        raise click.UsageError("--base and --served-from are for images, oci://registry/name:tag.")
    project = open_project(repository, said)
    names = model_names(project, models)
    if as_image:
        image = publish_to_registry(project, names, url, console, base=base, dry_run=dry_run, sign=sign)
        _show_image(url, image, console, dry_run=dry_run)
        return
    done = publish_objects(
        project, names, url, console, dry_run=dry_run, delete=delete, force=force, prune=prune or 0, sign=sign
    )
    _show_objects(done, console, dry_run=dry_run, delete=delete)


def _show_objects(done: PublishedObjects, console: Console, *, dry_run: bool, delete: bool) -> None:
    published = done.published
    console.warned(*done.cautions)
    verb = "would " if dry_run else ""
    for path in published.sent if dry_run else ():
        console.show(f"  {verb}send {plain(path)}")
    for path in published.removed:
        console.show(f"  {verb}{'remove' if dry_run else 'removed'} {plain(path)}")
    if published.outdated and not delete:
        console.note(
            f"    {counted(len(published.outdated), 'file')} of earlier publications stay; --delete removes them"
        )
    for address in done.pruned:
        console.show(f"  removed {plain(address)}")
    console.show(plain(done.url))
    console.serve_with(done.command)
    document = {
        "url": done.url,
        "dry_run": dry_run,
        "pruned": done.pruned,
        "command": done.command,
        "cautions": done.cautions,
    }
    console.result(document | vars(published))


def _show_image(url: str, published: PublishedImage, console: Console, *, dry_run: bool) -> None:
    console.warned(*published.cautions)
    for title in published.sent:
        console.show(f"  {'would send' if dry_run else 'sent'} {plain(title)}")
    if published.unchanged:
        console.note(f"    the registry {'has' if dry_run else 'had'} {counted(published.unchanged, 'layer')} already")
    console.show(plain(published.image))
    console.result({"url": url, "dry_run": dry_run} | vars(published))


@click.command(cls=options.GroupedCommand)
@click.argument("address")
@click.argument("directory", type=options.FOLDER)
@options.signature("Refuse models that the owner of this public key did not sign.")
@options.with_console
def fetch(
    address: str, directory: Path, require_signature: tuple[Path, ...], max_age: float | None, console: Console
) -> None:
    """Copy the models at ADDRESS, such as s3://bucket/models/3b5d..., to DIRECTORY, for a server that reads them there.

    Every file is compared with what was published, or signed, before DIRECTORY changes: it is created, filled if it
    is empty, or each model in it is replaced if envpack fetched it.
    """
    from envpack.workflow.publish import fetch_models

    if address.startswith("oci://"):
        raise click.UsageError("fetch copies no image: mount it as a volume, and check it with `envpack verify`.")
    done = fetch_models(address, directory, console, trust=options.trust_of(require_signature, max_age))
    console.warned(*done.cautions)
    console.serve_with(done.command)
    console.result({"url": address} | vars(done))
