"""`envpack inspect`: identify a stub, an environment or a model repository by its files, and check that it fits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import SAID_REPOSITORY, Console, advice, plain, table
from envpack.support.folders import whole_path
from envpack.support.text import counted

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.settings.table import Settings
    from envpack.support.errors import Finding
    from envpack.workflow.inspect import InspectedEnvironment, InspectedModels, InspectedStub

_SHOWN = 20  # findings on an environment; all of them are in the JSON document
_FINDING_KEYS = ("kind", "severity", "where", "what", "fix")
_MANIFEST_KEYS = (
    *("key", "content", "python", "platform", "glibc", "glibcxx", "numpy_abi", "cuda_libraries", "hidden_libraries"),
    "selection",
)


@click.command(cls=options.GroupedCommand)
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
    "--sbom", type=options.PLACE, metavar="FILE", help="Write the packages of an environment as CycloneDX JSON."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=64,
    metavar="GIB",
    help="Largest content of an archive. Default: 64.",
)
@options.signature("Refuse downloaded models, or a file of one, that the owner of this public key did not sign.")
@options.repository
@options.with_console
def inspect(
    path: str | None,
    environment: Path | None,
    said: Settings,
    require_signature: tuple[Path, ...],
    max_age: float | None,
    repository: Path,
    console: Console,
    *,
    strict: bool,
    **more: Any,
) -> int:
    """Identify a stub, an environment (folder or archive) or models, and list what is incompatible.

    PATH is a file, a folder, the name of a model, or the address of an image with models, oci://registry/name:tag;
    without it all models of the repository are inspected. Its content decides what it is. Nothing is run, and only an
    image is unpacked. Every file of an environment is compared with the environment's own list. The exit status is 1
    if something is incompatible or has changed.
    """
    from envpack.workflow.inspect import InspectedEnvironment, InspectedModels, inspect_path

    trust = options.trust_of(require_signature, max_age)
    found = inspect_path(path, repository, said, console, trust=trust, environment=environment, strict=strict, **more)
    match found:
        case InspectedModels():
            here = not path or "://" not in path
            is_model = whole_path(repository).parent == found.found.repository
            if here and (path or is_model):  # commands in fixes work on the model's repository
                SAID_REPOSITORY.set(found.found.repository)
            return _show_models(found, console, here=here)
        case InspectedEnvironment():
            return _show_environment(found, console, strict=strict)
    return _show_stub(found, console)


def _show_stub(stub: InspectedStub, console: Console) -> int:
    facts = stub.facts
    shown = table()
    shown.add_row("Triton", plain(f"ABI epochs {', '.join(facts.epochs)}"))
    shown.add_row("Python", plain(facts.python))
    shown.add_row("NumPy", " and ".join(map(str, facts.numpy)))
    shown.add_row("platform", plain(f"{facts.machine}, glibc {facts.glibc} or newer"))
    shown.add_row("built", plain(f"by envpack {facts.version} with {facts.compiler}"))
    shown.add_row("needs", "\n".join(map(plain, facts.needs)))
    _add_mismatches(shown, stub.mismatches)
    console.show(shown, even_if_quiet=bool(stub.mismatches))
    console.result({"stub": stub.path.absolute(), "facts": facts, "mismatches": _entries(stub.mismatches)})
    return 1 if stub.mismatches else 0


def _add_mismatches(shown: Table, mismatches: Sequence[Finding]) -> None:
    for mismatch in mismatches:
        shown.add_row(mismatch.kind, f"{plain(mismatch.what)}\n{advice(mismatch.fix)}", style="red")


def _entries(mismatches: Sequence[Finding]) -> list[dict[str, str]]:
    return [{"kind": each.kind, "reason": each.what, "fix": each.fix} for each in mismatches]


def _show_environment(environment: InspectedEnvironment, console: Console, *, strict: bool) -> int:
    found = environment.found
    console.show(_environment_table(environment, strict=strict), even_if_quiet=not environment.ok)
    console.result(
        {
            "environment": found.path,
            "form": found.form,
            "files": found.files,
            "size": found.size,
            "sha256": found.sha256 or None,
            "verified": found.verified,
            "manifest": {name: found.manifest[name] for name in _MANIFEST_KEYS if name in found.manifest} or None,
            "packages": found.packages,
            "findings": found.findings,
            "counts": found.count,
            "mismatches": _entries(environment.mismatches),
        }
    )
    return 0 if environment.ok else 1


def _environment_table(environment: InspectedEnvironment, *, strict: bool) -> Table:
    found, manifest = environment.found, environment.found.manifest
    shown = table()
    shown.add_row("form", plain(found.form))
    if manifest:
        where = f"{manifest.get('platform')}, glibc {manifest.get('glibc')} or newer"
        shown.add_row("Python", plain(f"{manifest.get('python')} for {where}"))
        shown.add_row("content", plain(str(manifest.get("content"))))
    if found.sha256:
        shown.add_row("SHA-256", found.sha256)
    shown.add_row("files", f"{found.files}, {found.size / 1e6:.1f} MB, {found.verified} verified")
    lines = list[str]()
    for package in found.packages:
        size = f"{package.size / 1e6:.1f} MB" if package.size else ""  # conda-pack's archives do not tell it
        lines.append("  ".join(filter(None, (f"{package.name} {package.version}", size, package.license))))
    shown.add_row("packages", "\n".join(map(plain, lines)))
    for finding in found.findings[:_SHOWN]:
        wrong = strict or finding.kind != "unproven"
        text = f"{finding.path}: {finding.reason}" if finding.path else finding.reason
        shown.add_row(finding.kind, plain(text), style="red" if wrong else "yellow")
    left = sum(found.count.values()) - _SHOWN
    if left > 0:
        shown.add_row("", f"and {left} more")
    _add_mismatches(shown, environment.mismatches)
    return shown


def _show_models(models: InspectedModels, console: Console, *, here: bool) -> int:
    found = models.found
    if found.findings:
        console.show(_findings_table(models), even_if_quiet=not models.ok)
    console.show(_summary(models), even_if_quiet=not models.ok)
    console.result(
        {
            "repository": found.repository,
            "triton": found.release.name,
            "models": found.models,
            "warm": found.warm,
            "ok": models.ok,
            "findings": [{key: getattr(each, key) for key in _FINDING_KEYS} for each in found.findings],
        }
    )
    if models.ok and here and not any(each.kind == "requirements-missing" for each in found.findings):
        place = () if found.repository == Path.cwd() else ("--repository", str(found.repository))
        named = found.models if len(found.models) == 1 else ()
        console.next_step("envpack", "verify" if found.built else "build", *place, *named)
    return 0 if models.ok else 1


def _findings_table(models: InspectedModels) -> Table:
    found = models.found
    shown = table(padding=(0, 2, 1, 0))
    for finding in found.findings:
        where = finding.where
        place = where.relative_to(found.repository) if where.is_relative_to(found.repository) else where
        style = "red" if finding.severity == "error" else "yellow"
        shown.add_row(
            f"[{style}]{finding.kind}[/{style}]",
            f"{plain(str(place))}: {plain(finding.what)}\n[bold]fix:[/bold] {advice(finding.fix)}",
        )
    return shown


def _summary(models: InspectedModels) -> str:
    found = models.found
    errors = sum(finding.severity == "error" for finding in found.findings)
    warnings = len(found.findings) - errors
    count = counted(len(found.models), "model")
    count += f" ({len(found.warm)} with a warm start)" if found.warm else ""
    return f"{count} for Triton {found.release.name}: {counted(errors, 'error')}, {counted(warnings, 'warning')}"
