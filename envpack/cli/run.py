"""`envpack run`: send requests to a model without a server."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, plain

if TYPE_CHECKING:
    from envpack.settings import Settings
    from envpack.testing import Answer, ModelRun, Tensor, Trial

_MOST_INPUT = 1 << 30  # bytes
_SHOWN_TEXT = 100
_SHOWN_RESPONSES = 50  # to one request
_SHOWN_FUNCTIONS = 15
_LEVELS = {"info": "dim", "warning": "yellow", "error": "red"}


@click.command(cls=options.GroupedCommand, short_help="Send requests to a model.")
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
    "--save-sample",
    is_flag=True,
    help="Add what --input sent and the model answered to its samples, envpack/smoke.json, which verify sends.",
)
@click.option(
    "--repeat", type=click.IntRange(1), default=1, metavar="N", help="Send the requests N times and time them."
)
@click.option("--profile", is_flag=True, help="Show how long each phase and each Python function took.")
@click.option("--memory", is_flag=True, help="Show its peak memory; with memray in its environment, keep a record.")
@options.debug(
    "Wait for a debugger (debugpy) on this port of this machine, by default 5678, before the model is imported."
)
@options.settings("run")
@options.repository
@options.with_console
def command(
    model: str,
    console: Console,
    *,
    inputs: tuple[str, ...],
    output: Path | None,
    save_sample: bool,
    repeat: int,
    profile: bool,
    memory: bool,
    debug: int | None,
    said: Settings,
    repository: Path,
) -> int:
    """Run MODEL in its environment, with its Python, under envpack's stub, and send it requests.

    No server runs: requests of the model to other models go to those of the repository. What only a server can do, as
    an ensemble or sequences, runs on the real server. Only --save-sample changes the repository.
    """
    from envpack.settings import open_project
    from envpack.testing import run_model
    from envpack.workflow import model_names, project_store

    if inputs.count("-") > 1:
        raise click.BadParameter("standard input can be read once.", param_hint="--input")
    if save_sample and not inputs:
        raise click.UsageError("--save-sample needs --input: what is sent without it is saved already, or made up.")
    project = open_project(repository, said)
    (name,) = model_names(project, (model,))
    with _files(inputs) as sources:
        done = run_model(
            project,
            name,
            sources,
            debug_port=debug or 0,
            profile=profile,
            memory_record=Path(f"{name}.memray").absolute() if memory else None,
            repeat=repeat,
            show=lambda level, text: console.note(f"    [{_LEVELS[level]}]{level}: {plain(text)}[/]"),
            progress=console,
            store=project_store(project),
            timeout=project.of().timeout,
            output=output,
            save_sample=save_sample,
        )
    _show(done.trial, console)
    if save_sample:
        _show_saved(done.saved, console)
    if memory:
        _show_memory(done, console)
    phases = done.phases if profile else {}
    if phases:
        console.show(_phase_table(phases))
    if done.functions:
        console.show(_functions(done.functions))
    console.result(_document(done) | {"phases": phases, "saved": str(done.saved or "")})
    return 0 if done.trial.ok else 1


@contextmanager
def _files(inputs: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """What is given as input, with a file for standard input. Errors of the block name it as that."""
    from envpack.support.errors import InputError
    from envpack.support.temp_dirs import temp_dir

    if "-" not in inputs:
        yield inputs
        return
    with temp_dir("input") as folder:
        file = folder / "standard-input.json"
        file.write_bytes(sys.stdin.buffer.read(_MOST_INPUT))
        try:
            yield tuple(str(file) if source == "-" else source for source in inputs)
        except InputError as error:
            error.where = error.where.replace(str(file), "standard input")
            raise


def _show(trial: Trial, console: Console) -> None:
    if not trial.answers:
        console.warned(f"nothing was sent to {trial.model}: give --input, since no request can be made up")
    for answer in trial.answers:
        for tensors in answer.outputs[:_SHOWN_RESPONSES]:
            if tensors:
                console.show(_table(tensors))
        if len(answer.responses) > _SHOWN_RESPONSES:
            console.show(f"… and {len(answer.responses) - _SHOWN_RESPONSES} more responses, see --json")
        if answer.fault or answer.difference:
            _show_wrong(answer, console)
    if trial.samples:
        console.show(plain(str(trial.samples)))
    if figures := trial.latency():
        console.show(_latency(sum(len(answer.seconds) for answer in trial.answers), figures))


def _show_saved(file: Path | None, console: Console) -> None:
    if file is None:
        console.warned("no sample is saved, because an answer is wrong")
    else:
        console.note(f"saved: {plain(str(file))} has what was sent, and the answers")


def _show_wrong(answer: Answer, console: Console) -> None:
    first, *others = (answer.fault or answer.difference).splitlines()
    console.show(f"[bold red]wrong:[/bold red] {plain(first)}")
    for line in others:
        console.show(f"    {plain(line)}")
    if answer.fix:
        console.show(f"[bold]  fix:[/bold] {plain(answer.fix)}")


def _show_memory(done: ModelRun, console: Console) -> None:
    if done.peak_memory:
        console.show(f"most memory: {done.peak_memory / 2**20:.0f} MiB")
    if done.memory_record:
        record = plain(str(done.memory_record))
        console.show(f"recorded by memray: {record}; for example: memray flamegraph {record}")


def _phase_table(phases: dict[str, float]) -> Any:
    from rich.table import Table

    table = Table("phase", "seconds", box=None, header_style="dim")
    for name, seconds in phases.items():
        table.add_row(name, f"{seconds:.3f}")
    return table


def _functions(functions: Sequence[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table("own s", "with calls s", "calls", "function", "where", box=None, header_style="dim")
    for found in functions[:_SHOWN_FUNCTIONS]:
        where = f"{found['file']}:{found['line']}" if found["line"] else ""
        own, total = f"{found['own_seconds']:.3f}", f"{found['seconds']:.3f}"
        table.add_row(own, total, str(found["calls"]), plain(found["function"]), plain(where))
    return table


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


def _latency(count: int, figures: Mapping[str, float]) -> Any:
    from rich.table import Table

    table = Table("requests", *(f"{name} ms" for name in figures), box=None, header_style="dim")
    table.add_row(str(count), *(f"{value * 1e3:.3f}" for value in figures.values()))
    return table


def _document(done: ModelRun) -> dict[str, Any]:
    trial = done.trial
    return {
        "model": trial.model,
        "where": done.where,
        "ok": trial.ok,
        "load_seconds": trial.load_seconds,
        "peak_memory": done.peak_memory,
        "memory_record": str(done.memory_record or ""),
        "functions": done.functions,
        "samples": dataclasses.asdict(trial.samples) if trial.samples else None,
        "answers": [_answer(answer) for answer in trial.answers],
        "log": [{"level": line.level, "text": line.text, "place": line.place} for line in done.log],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "responses": [
            {
                "outputs": [_tensor(tensor) for tensor in tensors],
                "error": response.error,
                "parameters": json.loads(response.parameters or "{}"),
            }
            for response, tensors in zip(answer.responses, answer.outputs, strict=True)
        ],
        "seconds": answer.seconds,
        "fault": answer.fault,
        "difference": answer.difference,
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    data = [item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else item for item in tensor.data]
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": data}
