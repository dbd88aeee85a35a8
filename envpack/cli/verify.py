"""`envpack verify`: boot the server, ask the models, give a verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, Failure
from envpack.support.errors import EnvpackError

if TYPE_CHECKING:
    from envpack.server import RuntimeOptions
    from envpack.verification import Verdict, VerifyOptions

_STATUS = {"yes": 0, "no": 1, "yes as far as checked": 8}
_NOT_IN_A_JOB = {
    "pull": "Kubernetes fetches the image",
    "keep": "the server ends with the Job",
    "report": "the file would end with the Job",
    "on": "each Job starts its own server",
    "group": "a Job has one server",
    "backends": "backends are found beside the models that the Job mounts",
}
_PASSED_ON = {
    "server": "--server",
    "port": "--port",
    "requests": "--requests",
    "variables": "--env",
    "preload": "--preload",
    "backend_settings": "--backend-config",
    "arguments": "--server-arg",
}
_WHERE = (
    click.option(
        "--runtime",
        type=click.Choice(["auto", "docker", "process"]),
        default="auto",
        help="How to run the server: in a container (Docker, or podman through its socket), or as a process of this "
        "machine. Default: auto, a container if a daemon is there and has the image.",
    ),
    options.image,
    click.option("--triton", default="", metavar="RELEASE", help="The release whose image to take, such as 24.10."),
    click.option("--pull", is_flag=True, help="Fetch the image if it is not there."),
    click.option("--gpu", is_flag=True, help="Give the server all GPUs, and prove that models can use them."),
    click.option(
        "--server", type=click.Path(path_type=Path), help="The tritonserver to boot. Default: the one found here."
    ),
    click.option("--port", type=click.IntRange(1, 65535), help="HTTP port on 127.0.0.1. Default: a free one."),
    click.option(
        "--served-from",
        default="",
        metavar="PATH",
        help="Where a container sees the repository. Default: what envpack.toml says, else /models.",
    ),
    click.option(
        "--shm-size", type=options.SIZE, default="256m", metavar="SIZE", help="A container's /dev/shm. Default: 256m."
    ),
    click.option(
        "--memory", type=options.SIZE, metavar="SIZE", help="Most memory that a container may take. Default: no limit."
    ),
    click.option("--env", "variables", multiple=True, metavar="KEY=VALUE", help="Variable for the server; repeatable."),
    click.option(
        "--preload",
        "preload",
        multiple=True,
        metavar="NAME",
        help="tcmalloc, jemalloc or the path of a library for the server's LD_PRELOAD; repeatable.",
    ),
    click.option(
        "--backend-config",
        "backend_settings",
        multiple=True,
        metavar="BACKEND,NAME=VALUE",
        help="Passed on to the server; repeatable.",
    ),
    click.option(
        "--server-arg", "arguments", multiple=True, metavar="ARG", help="Passed on to the server; repeatable."
    ),
    click.option("--keep", is_flag=True, help="Leave the server running, and say how to reach and how to stop it."),
)


def _where(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where to run the server."""
    for option in reversed(_WHERE):
        command = option(command)
    return command


@click.command(short_help="Boot a real Triton server and prove that it serves the models.")
@options.models
@_where
@options.timeout
@click.option(
    "--requests",
    type=click.IntRange(min=0),
    default=20,
    metavar="N",
    help="Requests to each model whose time is measured, within a second. Default: 20.",
)
@click.option(
    "--require-signature",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="Refuse a published repository unless the owner of this public key has signed each model in it.",
)
@options.backends
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the verdict as one self-contained HTML file.",
)
@click.option(
    "--emit",
    type=click.Choice(["kubernetes"]),
    help="Verify nothing; print a Kubernetes Job that does the same in the cluster, with the image that will serve.",
)
@click.option(
    "--claim", default="models", metavar="NAME", help="The PersistentVolumeClaim of such a Job. Default: models."
)
@click.option(
    "--envpack-image",
    default="",
    metavar="IMAGE",
    help="The image from which such a Job takes envpack: an official image of Python in which pip installed envpack.",
)
@click.option(
    "--envpack-wheel",
    default="",
    metavar="WHEEL",
    help="Or the wheel of envpack that such a Job installs: an address, or a path as the Job sees the repository.",
)
@options.on
@click.option(
    "--group",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="With --on: how many models share a server. Default: 1.",
)
@options.repository
@options.with_console
def command(
    models: tuple[str, ...],
    emit: str | None,
    on: str,
    group: int,
    report: Path | None,
    require_signature: Path | None,
    repository: Path,
    console: Console,
    *,
    every: bool,
    **settings: Any,
) -> int:
    """Boot a real Triton server and prove that it serves each MODEL, by default all of the repository.

    The address of published models, such as s3://bucket/models or oci://registry/name:tag, may stand in front of them.
    """
    from envpack.project import open_project

    address = models[0] if models and "://" in models[0] else ""
    if address:
        models = models[1:]
        repository = Path()
    else:
        models = options.model_names(open_project(repository), models, every=every)
    job = {name: settings.pop(name) for name in ("claim", "envpack_image", "envpack_wheel")}
    if require_signature and not address:
        raise click.UsageError("--require-signature is for the address of a published repository.")
    if emit and address:
        raise click.UsageError("--emit kubernetes mounts a repository; give no address.")
    if emit:
        return _emit_job(models, job, repository, console)
    if on:
        _refuse_on_cluster(require_signature, **settings)
    choices = _verify_options(repository, **settings)
    if report is not None and not report.absolute().parent.is_dir():
        raise click.UsageError(f"--report: there is no folder {report.absolute().parent}.")
    if on:
        from envpack.cli.verify_on import verdict_of_cluster
        from envpack.store import parse_location

        place = parse_location(address) if address else repository.absolute()
        verdict, cluster = verdict_of_cluster(on, place, models, choices, group, console)
        return _show(verdict, report, console, cluster)
    if address:
        return _show(_verdict_on_published(address, models, choices, require_signature, console), report, console)
    from envpack.verification import verify

    return _show(verify(repository.absolute(), models, options=choices, progress=console), report, console)


def _verdict_on_published(
    address: str, models: tuple[str, ...], choices: VerifyOptions, public_key: Path | None, console: Console
) -> Verdict:
    from envpack.registry import parse_image_address
    from envpack.signing import read_public_key
    from envpack.store import parse_location
    from envpack.verification import verify_image, verify_published

    if choices.where.runtime == "docker" or choices.where.image:
        raise click.UsageError("A server loads published models as a process of this machine, not in a container.")
    key = read_public_key(public_key) if public_key else None
    if address.startswith("oci://"):
        return verify_image(parse_image_address(address), models, options=choices, key=key, progress=console)
    return verify_published(parse_location(address), models, options=choices, key=key, progress=console)


def _refuse_on_cluster(require_signature: Path | None, *, keep: bool, port: int | None, **_: Any) -> None:
    given = {"--require-signature": require_signature, "--keep": keep, "--port": port}
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


def _verify_options(repository: Path, *, timeout: int, requests: int, **where: Any) -> VerifyOptions:
    from envpack.verification import VerifyOptions

    return VerifyOptions(_runtime_options(repository, **where), timeout=timeout, requests=requests)


def _runtime_options(
    repository: Path,
    *,
    triton: str,
    served_from: str,
    shm_size: int,
    memory: int | None,
    variables: tuple[str, ...],
    preload: tuple[str, ...],
    backends: Path | None,
    **same: Any,
) -> RuntimeOptions:
    from envpack.project import open_project
    from envpack.repository import backends_folder
    from envpack.server import RuntimeOptions, find_preload

    if same["runtime"] == "docker" and same["server"]:
        raise click.UsageError("--server is for a process of this machine, and --runtime docker asks for a container.")
    if same["runtime"] == "process" and (same["image"] or same["pull"]):
        raise click.UsageError("--image and --pull are for containers, and --runtime process asks for none.")
    project = open_project(repository)
    return RuntimeOptions(
        release=triton or project.triton,
        served_from=served_from or project.served_from,
        extra_backends=backends_folder(project, backends),
        shm_bytes=shm_size,
        memory_bytes=memory,
        environment=dict(map(_variable, variables)),
        preload=tuple(map(find_preload, preload)),
        **same,
    )


def _emit_job(models: tuple[str, ...], job: dict[str, str], repository: Path, console: Console) -> int:
    from envpack.project import open_project
    from envpack.server import RuntimeOptions
    from envpack.verification import JobOptions, job_yaml, make_job

    given = _given_options()
    if bool(job["envpack_image"]) == bool(job["envpack_wheel"]):
        raise click.UsageError("--emit kubernetes takes envpack from --envpack-image or --envpack-wheel; give one.")
    project = open_project(repository)
    where = RuntimeOptions(release=given.get("triton") or project.triton, image=given.get("image", ""))
    gpus = 1 if given.get("gpu") else 0
    options = JobOptions(
        image=where.image_name(),
        served_from=given.get("served_from") or project.served_from or "/models",
        models=models,
        gpus=gpus,
        shm_bytes=given.get("shm_size", JobOptions.shm_bytes),
        memory_bytes=given.get("memory", JobOptions.memory_bytes),
        timeout=given.get("timeout", JobOptions.timeout),
        arguments=_passed_on(given),
        **job,
    )
    if console.as_json:
        console.result({"job": make_job(options)})
    else:
        click.echo(job_yaml(options), nl=False)
    return 0


def _given_options() -> dict[str, Any]:
    """The options that the command line names, by parameter; those that a Job cannot honour are refused."""
    context = click.get_current_context()
    from click.core import ParameterSource

    given = {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    for name, reason in _NOT_IN_A_JOB.items():
        if name in given:
            raise click.UsageError(f"--{name.replace('_', '-')} does not go with --emit kubernetes: {reason}.")
    if given.get("runtime") == "docker":
        raise click.UsageError("--runtime docker does not go with --emit kubernetes: a Job starts the server itself.")
    return given


def _passed_on(given: dict[str, Any]) -> tuple[str, ...]:
    """The options that the `envpack verify` in the Job gets as they are."""
    words: list[str] = []
    for name, option in _PASSED_ON.items():
        values = given.get(name, ())
        for value in values if isinstance(values, tuple) else (values,):
            words += [option, f"{value:g}" if isinstance(value, float) else str(value)]
    return tuple(words)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--env wants KEY=VALUE, not {text!r}.")
    return name, value
