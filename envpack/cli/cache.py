"""`envpack cache` and `envpack channel`: what envpack keeps, and this machine's interpreters as a conda channel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, plain, table
from envpack.support.text import counted

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.settings.table import Settings
    from envpack.workflow.cache import CacheEntry


@click.group()
def cache() -> None:
    """List, verify or remove what envpack keeps for the next build."""


_store = click.option("--store", default="", metavar="URL", help="A store that machines share, instead of the cache.")


@cache.command(name="ls", short_help="List the entries of the cache or of a shared store.")
@_store
@options.with_console
def list_command(store: str, console: Console) -> None:
    """List the entries of the cache with their size on disk, or those of a store that machines share."""
    if store:
        _list_store(store, console)
        return
    from envpack.support.folders import cache_root
    from envpack.workflow.cache import list_cache

    entries = list_cache()
    console.show(_table(entries))
    console.show(f"{plain(str(cache_root()))}: {sum(entry.size for entry in entries) / 1e6:.1f} MB")
    console.result({"cache": cache_root(), "entries": entries})


@cache.command()
@click.option(
    "--days",
    type=options.Days(min=0),
    default=30.0,
    help="Remove entries unused for this many days. Default: 30; 0 for all.",
)
@_store
@click.option(
    "--locks",
    multiple=True,
    type=options.FOLDER,
    metavar="DIRECTORY",
    help="Keep what the lockfiles in this folder name; only with --store, repeatable.",
)
@click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing.")
@options.with_console
def prune(days: float, store: str, locks: tuple[Path, ...], console: Console, *, dry_run: bool) -> None:
    """Remove entries that were not used for some days. Environments beside models stay as they are."""
    if locks and not store:
        raise click.UsageError("Give --store with --locks.")
    from envpack.workflow.cache import prune_cache
    from envpack.workflow.project import prune_shared

    console.begin("would remove" if dry_run else "remove")
    pruned: Any
    if store:
        pruned = prune_shared(store, days, locks=locks, dry_run=dry_run, progress=console)
    else:
        pruned = prune_cache(days, dry_run=dry_run, progress=console)
    console.end(f"{counted(len(pruned.entries), 'entry')}, {pruned.size / 1e6:.1f} MB")
    console.result({"removed": pruned.entries, "size": pruned.size, "dry_run": dry_run})


@cache.command()
@_store
@click.option(
    "--repair", is_flag=True, help="Remove what is damaged, so that it is put there again; only with --store."
)
@options.with_console
def verify(store: str, console: Console, *, repair: bool) -> int:
    """Compare what the cache, or a store, holds with its digests. Exit code 1 if anything is damaged."""
    if store:
        return _verify_store(store, console, repair=repair)
    if repair:
        raise click.UsageError("--repair is for a store; what is damaged in the cache is made again when it is used.")
    from envpack.workflow.cache import verify_cache

    check = verify_cache(progress=console)
    for entry in check.damaged:
        files = f": {', '.join(entry.files)}" if entry.files else ""
        console.show(plain(f"damaged: {entry.path}{files}"), even_if_quiet=True)
    console.show(f"{counted(check.checked, 'entry')} verified, {len(check.damaged)} damaged")
    console.result({"checked": check.checked, "damaged": check.damaged})
    return 1 if check.damaged else 0


def _list_store(url: str, console: Console) -> None:
    from envpack.workflow.project import list_shared

    content = list_shared(url)
    shown = table("kind", "what", "MB")
    for entry in content.entries:
        state = "" if entry.complete else " (incomplete)"
        shown.add_row(entry.kind, plain(entry.label) + state, f"{entry.size / 1e6:.1f}")
    console.show(shown)
    loose = f", {content.loose / 1e6:.1f} MB of them of no entry" if content.loose else ""
    console.show(f"{plain(url)}: {content.size / 1e6:.1f} MB{loose}")
    console.result({"store": url} | vars(content))


def _verify_store(url: str, console: Console, *, repair: bool) -> int:
    from envpack.workflow.project import verify_shared

    console.begin("verify the store")
    check = verify_shared(url, repair=repair, progress=console)
    console.end(f"{counted(check.checked, 'blob')}, {len(check.damaged)} damaged")
    for path in check.damaged:
        console.show(plain(f"{'removed' if check.removed else 'damaged'}: {path}"), even_if_quiet=True)
    console.show(f"{counted(check.checked, 'blob')} verified, {len(check.damaged)} damaged")
    console.result({"checked": check.checked, "damaged": check.damaged, "removed": check.removed})
    return 1 if check.damaged and not check.removed else 0


def _table(entries: Sequence[CacheEntry]) -> Table:
    from envpack.support.folders import KINDS

    shown = table("kind", "entries", "what", "MB")
    kinds = dict.fromkeys(entry.kind for entry in entries)
    for kind in kinds:
        of_kind = [entry for entry in entries if entry.kind == kind]
        total = sum(entry.size for entry in of_kind) / 1e6
        shown.add_row(kind, str(len(of_kind)), KINDS[kind].what, f"{total:.1f}")
        if kind == "environments":
            for entry in of_kind:
                shown.add_row("", "", f"  {plain(entry.label)}", f"{entry.size / 1e6:.1f}", style="dim")
    return shown


@click.group()
def channel() -> None:
    """Make a conda channel of this machine's Pythons, to serve it, or to carry it to machines without a network."""


@channel.command("add-python", short_help="Put a Python of this machine into a channel, as a package.")
@click.argument("python", metavar="3.8")
@click.option(
    "--from",
    "place",
    type=options.PLACE,
    metavar="PATH",
    help="The interpreter, or the folder that it was installed to. Default: the best one on this machine.",
)
@click.option(
    "--to",
    "folder",
    type=options.FOLDER,
    metavar="FOLDER",
    help="The channel. Default: channels/own in envpack's data folder.",
)
@options.settings("channel-add-python")
@options.with_console
def add(
    python: str,
    place: Path | None,
    folder: Path | None,
    said: Settings,
    console: Console,
) -> None:
    """Put a Python of this machine into a channel folder, as a conda package that works anywhere."""
    from envpack.workflow.cache import add_python

    added = add_python(python, place, folder, said, console)
    console.show(plain(f"--channel {added.channel}"))
    console.result(vars(added))
    minor = ".".join(added.package.version.split(".")[:2])
    console.next_step("envpack", "build", "--channel", added.channel, "--python", minor)


@channel.command("ls", short_help="List the packages of a channel.")
@click.argument("folder", type=options.PLACE, required=False)
@options.with_console
def ls(folder: Path | None, console: Console) -> None:
    """List the packages of a channel FOLDER, by default envpack's own."""
    from envpack.workflow.cache import list_channel

    address, packages = list_channel(folder)
    shown = table("package", "version", "build", "platform", "MB")
    for package in packages:
        names = map(plain, (package.name, package.version, package.build, package.subdir))
        shown.add_row(*names, f"{package.size / 1e6:.1f}")
    console.show(shown)
    console.show(plain(f"--channel {address}"))
    console.result({"channel": address, "packages": packages})
