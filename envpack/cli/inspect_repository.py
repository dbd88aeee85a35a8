"""`envpack inspect` of a model repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envpack.cli.console import Console, plain
from envpack.support.text import counted

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.inspection import RepositoryInspection
    from envpack.settings import Settings


def inspect_repository_at(path: Path, said: Settings, console: Console, *, strict: bool) -> int:
    """Show every finding on a repository, or on one model of it; returns the exit status."""
    from envpack.inspection import inspect_repository
    from envpack.repository import looks_like_model
    from envpack.settings import open_project

    path = path.absolute()
    names = [path.name] if looks_like_model(path) else []
    project = open_project(path.parent if names else path, said)
    found = inspect_repository(project, project.release, names)
    good = found.ok and not (strict and found.findings)
    if found.findings:
        console.show(_table(found), even_if_quiet=not good)
    console.show(_summary(found), even_if_quiet=not good)
    console.result(
        {
            "repository": str(found.repository),
            "triton": project.release.name,
            "models": list(found.models),
            "warm": list(found.warm),
            "ok": good,
            "findings": [
                {
                    "kind": each.kind,
                    "severity": each.severity,
                    "where": str(each.where),
                    "what": each.what,
                    "fix": each.fix,
                }
                for each in found.findings
            ],
        }
    )
    return 0 if good else 1


def _table(found: RepositoryInspection) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 1, 0))
    for finding in found.findings:
        where = finding.where
        place = where.relative_to(found.repository) if where.is_relative_to(found.repository) else where
        style = "red" if finding.severity == "error" else "yellow"
        table.add_row(
            f"[{style}]{finding.kind}[/{style}]",
            f"{plain(str(place))}: {plain(finding.what)}\n[bold]fix:[/bold] {plain(finding.fix)}",
        )
    return table


def _summary(found: RepositoryInspection) -> str:
    errors = sum(finding.severity == "error" for finding in found.findings)
    warnings = len(found.findings) - errors
    models = counted(len(found.models), "model")
    models += f" ({len(found.warm)} with a warm start)" if found.warm else ""
    return f"{models} for Triton {found.release.name}: {counted(errors, 'error')}, {counted(warnings, 'warning')}"
