"""`envpack inspect` of a folder or an archive."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.cli.console import Console, plain

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.archive import Inspection
    from envpack.support.findings import Finding

_SHOWN = 20  # findings; all of them are in the JSON document
_MANIFEST_KEYS = (
    *("key", "content", "python", "platform", "glibc", "glibcxx", "numpy_abi", "cuda_libraries", "hidden_libraries"),
    "selection",
)


def inspect_environment_at(
    path: Path, triton: str, console: Console, *, strict: bool, sbom: Path | None, limit: int
) -> int:
    """Show what an environment is and every finding on it; returns the exit status."""
    from envpack.archive import inspect_environment

    found = inspect_environment(path.absolute(), limit=limit << 30)
    mismatches = _mismatches(path.absolute(), triton) if triton else ()
    good = found.is_good(strict=strict) and not mismatches
    if sbom and good:
        _write_sbom(found, sbom)
    console.show(_table(found, mismatches, strict=strict))
    console.result(_as_json(found, mismatches))
    return 0 if good else 1


def _mismatches(path: Path, triton: str) -> Sequence[Finding]:
    from envpack.inspection import find_mismatches, image_host, read_environment_facts
    from envpack.settings import find_release

    release = find_release(triton)
    return find_mismatches(None, read_environment_facts(path), release, image_host(release))


def _write_sbom(found: Inspection, file: Path) -> None:
    from envpack.archive import bill_of_materials
    from envpack.support.failures import storage_errors
    from envpack.support.replacement import write_output

    version = str(found.manifest.get("content") or found.sha256)
    python = str(found.manifest.get("python", ""))
    text = bill_of_materials(found.packages, name=found.path.name, version=version, python=python)
    with storage_errors(file):
        write_output(file, text)


def _as_json(found: Inspection, mismatches: Sequence[Finding]) -> dict[str, object]:
    manifest: Mapping[str, object] = found.manifest
    return {
        "environment": str(found.path),
        "form": found.form,
        "files": found.files,
        "size": found.size,
        "sha256": found.sha256 or None,
        "verified": found.verified,
        "manifest": {name: manifest[name] for name in _MANIFEST_KEYS if name in manifest} or None,
        "packages": [dataclasses.asdict(package) for package in found.packages],
        "findings": [dataclasses.asdict(finding) for finding in found.findings],
        "counts": found.count,
        "mismatches": [{"kind": each.kind, "reason": each.what, "fix": each.fix} for each in mismatches],
    }


def _table(found: Inspection, mismatches: Sequence[Finding], *, strict: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_row("form", plain(found.form))
    manifest = found.manifest
    if manifest:
        table.add_row(
            "Python",
            plain(f"{manifest.get('python')} for {manifest.get('platform')}, glibc {manifest.get('glibc')} or newer"),
        )
        table.add_row("content", plain(str(found.manifest.get("content"))))
    if found.sha256:
        table.add_row("SHA-256", found.sha256)
    table.add_row("files", f"{found.files}, {found.size / 1e6:.1f} MB, {found.verified} verified")
    lines = [
        f"{package.name} {package.version}  {package.size / 1e6:.1f} MB  {package.license}".rstrip()
        for package in found.packages
    ]
    table.add_row("packages", "\n".join(map(plain, lines)))
    for finding in found.findings[:_SHOWN]:
        wrong = strict or finding.kind != "unproven"
        text = f"{finding.path}: {finding.reason}" if finding.path else finding.reason
        table.add_row(finding.kind, plain(text), style="red" if wrong else "yellow")
    left = sum(found.count.values()) - _SHOWN
    if left > 0:
        table.add_row("", f"and {left} more")
    for mismatch in mismatches:
        table.add_row(mismatch.kind, f"{plain(mismatch.what)}\n{plain(mismatch.fix)}", style="red")
    return table
