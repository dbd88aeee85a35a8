"""`envpack build`: put execution environments beside their models."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.build_jobs import emit_build_jobs, job_options, take_job_options
from envpack.cli.cluster_view import on_cluster
from envpack.cli.console import Console, plain
from envpack.cli.each_model import EachModel

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.archive import Format
    from envpack.fleet import Task
    from envpack.project import Project
    from envpack.workflow import BuildOptions, BuiltModel, ModelPlan

_MEGA = 1e6


@click.command(short_help="Build execution environments and put them beside their models.")
@options.models
@click.option(
    "--format",
    "archive_format",
    type=click.Choice(["dir", "tar.gz", "tar"]),
    help="A folder beside the model (loads fastest), or an archive (easy to ship; tar is larger and loads faster). "
    "Default: that of envpack.toml, else that of the environment that the model has, else dir.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave files out, by a pattern as in .gitignore, beside those of envpack.toml; repeatable. Tests, headers, "
    "static libraries and manuals are always left out.",
)
@click.option(
    "--include", multiple=True, metavar="PATTERN", help="Keep files that another pattern leaves out; repeatable."
)
@click.option(
    "--packer",
    type=click.Choice(["envpack", "conda-pack"]),
    default="envpack",
    help="What makes the archive: envpack, or conda-pack's library. Default: envpack.",
)
@click.option(
    "--stub",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Put a stub beside the model. Default: auto, if the release's own has another Python or cannot serve NumPy 2.",
)
@click.option(
    "--from-prefix",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="Take over this conda or virtual environment instead of building from requirements.",
)
@options.link_mode
@click.option(
    "--layout",
    type=click.Choice(["model", "backend"]),
    help="Where the stub goes: beside the model, or into a backend for its Python, which models share. Default: that "
    "of envpack.toml, else unchanged.",
)
@options.backends
@click.option(
    "--copy-library",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="Folder of a server's own Python backend: copy its library into ours instead of linking to it.",
)
@click.option(
    "--start",
    type=click.Choice(["warm", "cold"]),
    help="How the model's instances start: warm, from one process that has imported the model, or cold. Default: that "
    "of envpack.toml, else unchanged.",
)
@click.option("--force", is_flag=True, help="Rename what envpack did not make and has to replace, instead of refusing.")
@click.option("--strip", is_flag=True, help="Remove debug information from libraries and programs.")
@click.option(
    "--served-from",
    default="",
    metavar="PATH",
    help="Path of the model repository on the server, if it differs.",
)
@click.option("--sizes", is_flag=True, help="Show the size of each package.")
@click.option("--dry-run", is_flag=True, help="Show what would change and why, and change nothing.")
@options.resolve
@options.toolchain
@options.store
@options.on
@click.option(
    "--store-only", is_flag=True, help="With --on: leave what the workers make in the store, and place nothing here."
)
@job_options
@options.repository
@options.with_console
def command(
    models: tuple[str, ...],
    repository: Path,
    console: Console,
    *,
    every: bool,
    sizes: bool,
    dry_run: bool,
    store: str,
    push: bool | None,
    on: str,
    store_only: bool,
    emit: str | None,
    **settings: Any,
) -> int:
    """Build the execution environment of each MODEL, by default all, and put it beside the model.

    A model that fails does not keep the others from being built.
    """
    from envpack.project import open_project
    from envpack.repository import open_model
    from envpack.workflow import BuildOptions, ResolveOptions, build_model, project_store, release_for

    project = open_project(repository)
    names = options.chosen_models(project, models, every=every)
    if store_only and not (on and project_store(project, store)):
        raise click.UsageError("--store-only is for --on and --store.")
    job = take_job_options(settings, emit=emit, on=on, dry_run=dry_run)
    resolve = ResolveOptions(**{field.name: settings.pop(field.name) for field in dataclasses.fields(ResolveOptions)})
    build_options = BuildOptions(resolve=resolve, **settings)
    console.warned(release_for(project, resolve).warning)
    each = EachModel(names, console)
    if dry_run:
        return _dry_run(project, each, build_options, console)
    shared = project_store(project, store, push=push)
    if emit:
        emit_build_jobs(project, names, build_options, shared, job, console)
        return 0
    each.do(lambda name: open_model(project.repository / name))  # what is wrong there is an error before any work

    def tasks() -> Sequence[Task]:
        from envpack.fleet import build_tasks

        return build_tasks(project, each.left, build_options, shared)

    done = on_cluster(on, tasks, console)
    each.add_failed(done.failed)
    here = EachModel([], console) if store_only else each
    built = here.do(lambda name: build_model(project, name, build_options, console, store=shared))
    for model in built:
        for warning in model.warnings:
            console.warned(warning)
        if model.changed and model.forms:
            console.note(_forms_line(model.name, model.forms))
        if sizes and model.sizes:
            console.show(_sizes_table(model))
    console.warned(_unpacked_often(built))
    console.warned(_unpacked_at_once(project, built))
    if any(model.changed for model in built):
        some = models or len(each.left) < len(names)
        console.next_step("envpack", "verify", *_repository_option(repository), *(each.left if some else ()))
    entries = [_as_json(dataclasses.asdict(model), sizes=sizes) for model in built]
    return each.finish({"models": entries} | done.as_json(), "built")


def _dry_run(project: Project, each: EachModel, build_options: BuildOptions, console: Console) -> int:
    from envpack.workflow import plan_model

    plans = each.do(lambda name: plan_model(project, name, build_options))
    for plan in plans:
        for line in _plan_lines(plan):
            console.show(line)
    return each.finish({"models": [options.as_json(dataclasses.asdict(plan)) for plan in plans]}, "planned")


def _repository_option(repository: Path) -> tuple[str, ...]:
    return () if repository == Path() else ("--repository", str(repository))


def _unpacked_often(built: Sequence[BuiltModel]) -> str:
    """What to say of several models with one archive: a server knows archives by their paths."""
    archives = [model.environment for model in built if model.environment and model.environment.is_file()]
    most = max(Counter(archive.stat().st_ino for archive in archives).values(), default=0)
    if most < 2:
        return ""
    return f"{most} models have the same archive, and a server unpacks it for each of them; --format dir is shared"


def _unpacked_at_once(project: Project, built: Sequence[BuiltModel]) -> str:
    """What to say if the repository has archives that servers unpack at the same time, and mix."""
    from envpack.repository import ONE_AT_A_TIME, PYTHON_BACKEND, examine_model, looks_like_model, unpacking_backends

    if {model.backend for model in built} <= {"", PYTHON_BACKEND}:
        return ""  # a folder of models without backends of their own may hold anything
    folders = [folder for folder in project.repository.iterdir() if folder.is_dir() and looks_like_model(folder)]
    examined = (examine_model(folder)[0] for folder in folders)  # models that nobody asked for may be broken
    unpacking = unpacking_backends(model for model in examined if model)
    if len(unpacking) < 2:
        return ""
    return (
        f"the backends {' and '.join(unpacking)} unpack archives at the same time, and their files get mixed:"
        f" start the server with {ONE_AT_A_TIME}, or build with --format dir"
    )


def _as_json(fields: dict[str, Any], *, sizes: bool) -> dict[str, Any]:
    if not sizes:
        del fields["sizes"]
    return options.as_json(fields)


def _plan_lines(plan: ModelPlan) -> Iterator[str]:
    """What a build of one model would change, and why."""
    python = f": Python {plan.python} ({plan.python_source}), Triton {plan.release}" if plan.python else ""
    yield f"[bold]{plain(plan.name)}[/bold]{plain(python)}"
    for change in plan.changes:
        yield f"  would {plain(change.action)} [dim]({plain(change.reason)})[/dim]"
    if not plan.changes:
        yield "  up to date"


def _forms_line(name: str, forms: Sequence[Format]) -> str:
    """The cost of each form of an environment: bytes to ship, and how much longer it takes to load."""
    return f"    {plain(name)}: " + " · ".join(
        f"{form.form} {form.size / _MEGA:.0f} MB{_later(form)}" for form in forms
    )


def _later(form: Format) -> str:
    return f", loads about {form.unpack_seconds} s later" if form.unpacked else ""


def _sizes_table(model: BuiltModel) -> Table:
    """The size of each package of a model's environment."""
    from rich.table import Table

    table = Table(box=None, title=plain(f"{model.name}: sizes in MB"), title_justify="left")
    table.add_column("package")
    for column in ("placed", "left out"):
        table.add_column(column, justify="right")
    for package in model.sizes:
        name = plain(f"{package.name} {package.version}")
        table.add_row(name, f"{package.size / _MEGA:.1f}", f"{package.left_out / _MEGA:.1f}")
    total, left_out = sum(package.size for package in model.sizes), sum(package.left_out for package in model.sizes)
    table.add_row("all", f"{total / _MEGA:.1f}", f"{left_out / _MEGA:.1f}", style="bold")
    return table
