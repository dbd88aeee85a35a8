"""`envpack doctor` and `releases`: about this machine, and about Triton."""

from __future__ import annotations

from pathlib import Path

import click

from envpack.cli import options
from envpack.cli.console import Console, advice, plain, table

_STYLES = {"ok": "green", "warn": "yellow", "missing": "red"}
_HEADS = ("Triton", "server", "stub ABI", "Python", "NumPy 2", "glibc", "environments", "activate", "server in a wheel")


@click.command()
@click.option("--strict", is_flag=True, help="Exit with 1 if something is missing.")
@options.repository
@options.with_console
def doctor(repository: Path, console: Console, *, strict: bool) -> int:
    """Check compilers, Pythons, channels, servers, containers, GPUs and disks, and print a fix for what is missing."""
    from envpack.settings.project import open_project
    from envpack.workflow.doctor.host import examine

    console.begin("check this machine")
    checks = examine(open_project(repository))
    missing = sum(check.state == "missing" for check in checks)
    warned = sum(check.state == "warn" for check in checks)
    console.end(f"{missing} missing, {warned} with a warning")
    shown = table()
    for check in checks:
        fix = f"\n[bold]fix:[/bold] {advice(check.fix)}" if check.fix else ""
        style = _STYLES[check.state]
        shown.add_row(f"[{style}]{check.state}[/{style}]", plain(check.name), f"{plain(check.what)}{fix}")
    console.show(shown, even_if_quiet=bool(missing))
    console.result({"ok": not missing, "checks": checks})
    return 1 if strict and missing else 0


@click.command()
@options.with_console
def releases(console: Console) -> None:
    """List the Triton releases that envpack knows, with what a stub and an execution environment depend on."""
    from envpack.settings.releases import all_releases
    from envpack.settings.table import DEFAULT_RELEASE

    known = list(all_releases().values())
    shown = table(*_HEADS)
    for release in known:
        shown.add_row(
            release.name,
            release.server,
            release.stub_abi,
            release.python,
            "yes" if release.numpy2 else "no",
            release.glibc,
            "folder, archive" if release.takes_folders else "archive",
            "run" if release.runs_activate else "not run",
            f"nvidia-pytriton {release.wheel}" if release.wheel else "",
        )
    console.show(shown)
    console.result({"default": DEFAULT_RELEASE, "releases": known})
