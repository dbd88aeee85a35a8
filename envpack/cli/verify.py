"""`envpack verify`: boot the server, ask the models, give a verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, Failure
from envpack.support.errors import EnvpackError

if TYPE_CHECKING:
    from envpack.settings import Project, Settings
    from envpack.verification import Verdict, VerifyOptions

_STATUS = {"yes": 0, "no": 1, "yes as far as checked": 8}


@click.command(cls=options.GroupedCommand, short_help="Boot a real Triton server and prove that it serves the models.")
@options.models
@options.settings("verify")
@click.option(
    "--require-signature",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="Refuse models that its owner did not sign.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the verdict as one HTML file.",
)
@options.repository
@options.with_console
def command(
    models: tuple[str, ...],
    said: Settings,
    report: Path | None,
    require_signature: Path | None,
    repository: Path,
    console: Console,
) -> int:
    """Boot a real Triton server and prove that it serves each MODEL, by default all of the repository.

    The address of published models, such as s3://bucket/models or oci://registry/name:tag, may stand in front of them.
    """
    from envpack.settings import open_project

    address = models[0] if models and "://" in models[0] else ""
    project = open_project(Path() if address else repository, said)
    models = models[1:] if address else options.model_names(project, models)
    if require_signature and not address:
        raise click.UsageError("--require-signature is for the address of a published repository.")
    on = project.of().on
    if on:
        _refuse_on_cluster(require_signature, said)
    choices = _verify_options(project)
    if report is not None and not report.absolute().parent.is_dir():
        raise click.UsageError(f"--report: there is no folder {report.absolute().parent}.")
    if on:
        from envpack.cli.verify_on import verdict_of_cluster
        from envpack.store import parse_location

        place = parse_location(address) if address else repository.absolute()
        verdict, cluster = verdict_of_cluster(on, place, models, choices, project.of().group, console)
        return _show(verdict, report, console, cluster)
    if address:
        return _show(_verdict_on_published(address, models, choices, require_signature, console), report, console)
    from envpack.verification import verify

    verdict = verify(repository.absolute(), models, options=choices, progress=console, project=project)
    return _show(verdict, report, console)


def _verdict_on_published(
    address: str, models: tuple[str, ...], choices: VerifyOptions, public_key: Path | None, console: Console
) -> Verdict:
    from envpack.deployment import parse_image_address, read_public_key
    from envpack.store import parse_location
    from envpack.verification import verify_image, verify_published

    if choices.where.runtime == "docker" or choices.where.image:
        raise click.UsageError("A server loads published models as a process of this machine, not in a container.")
    key = read_public_key(public_key) if public_key else None
    if address.startswith("oci://"):
        return verify_image(parse_image_address(address), models, options=choices, key=key, progress=console)
    return verify_published(parse_location(address), models, options=choices, key=key, progress=console)


def _refuse_on_cluster(require_signature: Path | None, said: Settings) -> None:
    given = {"--require-signature": require_signature, "--keep": said.keep, "port": said.port}
    for option in (option for option, value in given.items() if value):
        raise click.UsageError(f"{option} is for a server of this machine, and does not go with --on.")


def _show(
    verdict: Verdict, report: Path | None, console: Console, more: Mapping[str, Any] = MappingProxyType({})
) -> int:
    from envpack.cli.verdict_view import draw
    from envpack.verification import write_report

    for part in draw(verdict):
        console.show(part, even_if_quiet=not verdict.ok)
    document: dict[str, Any] = {"verdict": verdict.to_json(), **more}
    code = _STATUS[verdict.answer]
    if report is not None:
        try:
            write_report(verdict, report)
        except EnvpackError as error:  # which must not hide the verdict
            failure = Failure.of(error)
            console.show_failure(failure)
            document["error"] = dataclasses.asdict(failure)
            code = code or failure.exit_code
    console.result(document)
    return code


def _verify_options(project: Project) -> VerifyOptions:
    from envpack.repository import backends_folder
    from envpack.server import RuntimeOptions, find_preload
    from envpack.verification import VerifyOptions

    settled = project.of()
    if settled.runtime == "docker" and settled.server:
        raise click.UsageError("--server is for a process of this machine, and --runtime docker asks for a container.")
    if project.said.runtime == "process" and (project.said.image or project.said.pull):
        raise click.UsageError("--image and pull are for containers, and --runtime process asks for none.")
    where = RuntimeOptions(
        runtime=settled.runtime,
        server=settled.server,
        image=settled.image,
        release=settled.triton,
        pull=settled.pull,
        gpu=settled.gpu,
        port=settled.port,
        served_from=settled.served_from,
        extra_backends=backends_folder(project),
        environment=dict(map(_variable, settled.env)),
        preload=tuple(map(find_preload, settled.preload)),
        arguments=settled.server_arg,
        shm_bytes=settled.shm_size,
        memory_bytes=settled.memory,
        keep=settled.keep,
    )
    return VerifyOptions(where, timeout=settled.timeout, requests=settled.requests)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--env wants KEY=VALUE, not {text!r}.")
    return name, value
