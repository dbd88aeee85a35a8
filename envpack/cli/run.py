"""`envpack run`: send requests to a model without a server."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, plain

if TYPE_CHECKING:
    from envpack.local import Answer, LogLine, Trial
    from envpack.server import Tensor

_SHOWN_TEXT = 100
_LEVELS = {"info": "dim", "warning": "yellow", "error": "red"}
_STDERR = 2


@click.command(short_help="Send requests to a model, without a server.")
@click.argument("model", shell_complete=options.complete_model)
@click.option(
    "--input",
    "-i",
    "inputs",
    multiple=True,
    metavar="[INPUT=]FILE",
    help="Samples (.json, - for standard input), an array (.npy, .npz), or any file for an input of strings. Without "
    "one: the model's own samples, or a request made up from its configuration.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.npz",
    help="Save the outputs of the last response. Needs NumPy beside envpack.",
)
@click.option(
    "--repeat", type=click.IntRange(1), default=1, metavar="N", help="Send the requests N times and time them."
)
@click.option("--python", default="", metavar="X.Y", help="Python minor version, for a model without an environment.")
@options.triton
@options.store
@options.repository
@options.with_console
def command(
    model: str,
    console: Console,
    *,
    inputs: tuple[str, ...],
    output: Path | None,
    repeat: int,
    python: str,
    triton: str,
    store: str,
    push: bool | None,
    repository: Path,
) -> None:
    """Run MODEL in its environment, with its Python, under envpack's stub, and send it requests.

    No server runs, and the repository is not changed. Ensembles are run step by step, and what the model asks of other
    models goes to those of the repository.
    """
    from envpack.local import ModelFailed, save_arrays, try_model
    from envpack.project import open_project
    from envpack.repository import model_name
    from envpack.support.errors import InputError
    from envpack.workflow import BuildOptions, ResolveOptions, local_server, project_store

    project = open_project(repository)
    name = model_name(project.repository, model)
    chosen = BuildOptions(ResolveOptions(python=python, triton=triton))
    shared = project_store(project, store, push=push)
    log = _Log(console)
    server = local_server(project, chosen, log=log, progress=console, store=shared, output=_STDERR)
    try:
        with server:
            trial = try_model(server, name, project.repository / name, inputs, repeat=repeat, progress=console)
            metrics = server.metrics.lines()
    except ModelFailed as error:
        where = str(project.repository / name)
        hint = "correct the model; its own lines are named above"
        raise InputError(error.text, kind="model-failed", where=where, hint=hint) from error
    if output is not None and trial.answers and trial.answers[-1].responses:
        save_arrays(trial.answers[-1].responses[-1].outputs, output)
    _show(trial, metrics, console)
    console.result(_document(trial, metrics, log.lines))
    if not trial.ok:
        sys.exit(1)


class _Log:
    """Shows what models log, and keeps it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.lines: list[LogLine] = []

    def __call__(self, line: LogLine) -> None:
        if line.level == "verbose":
            return
        self.lines.append(line)
        self._console.note(f"    [{_LEVELS[line.level]}]{line.level}: {plain(line.text)}[/]")


def _show(trial: Trial, metrics: list[str], console: Console) -> None:
    if not trial.answers:
        console.warned(f"nothing was sent to {trial.model}: give --input, since no request can be made up")
    for answer in trial.answers:
        for response in answer.responses:
            if response.outputs:
                console.show(_table(tuple(map(_readable, response.outputs))))
        if answer.fault:
            console.show(f"[bold red]wrong:[/bold red] {plain(answer.fault.splitlines()[0])}")
            for line in answer.fault.splitlines()[1:]:
                console.show(f"    {plain(line)}")
    seconds = [time for answer in trial.answers for time in answer.seconds]
    if len(seconds) > 1:
        console.show(_latency(seconds))
    for line in metrics:
        console.show(plain(line))


def _readable(tensor: Any) -> Tensor:
    from envpack.local import readable

    return readable(tensor)


def _table(tensors: tuple[Tensor, ...]) -> Any:
    from rich.table import Table

    table = Table("output", "type", "shape", "elements", box=None, header_style="dim")
    for tensor in tensors:
        elements = ", ".join(map(_element, tensor.data[:_SHOWN_TEXT]))
        shown = elements if len(elements) <= _SHOWN_TEXT else elements[: _SHOWN_TEXT - 3] + "..."
        table.add_row(plain(tensor.name), tensor.datatype, str(list(tensor.shape)), plain(shown))
    return table


def _element(value: object) -> str:
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "backslashreplace"))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _latency(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    at = {percent: ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] for percent in (50, 95, 99)}
    parts = [f"p{percent} {value * 1e3:.3f} ms" for percent, value in at.items()]
    return f"{len(seconds)} requests: mean {statistics.mean(seconds) * 1e3:.3f} ms, {', '.join(parts)}"


def _document(trial: Trial, metrics: list[str], log: list[LogLine]) -> dict[str, Any]:
    return {
        "model": trial.model,
        "ok": trial.ok,
        "load_seconds": trial.load_seconds,
        "answers": [_answer(answer) for answer in trial.answers],
        "log": [{"level": line.level, "text": line.text, "place": line.place} for line in log],
        "metrics": metrics,
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "responses": [
            {
                "outputs": [_tensor(_readable(tensor)) for tensor in response.outputs],
                "error": response.error,
                "parameters": json.loads(response.parameters or "{}"),
            }
            for response in answer.responses
        ],
        "seconds": answer.seconds,
        "fault": answer.fault,
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    data = [item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else item for item in tensor.data]
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": data}
