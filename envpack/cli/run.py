"""`envpack run`: send requests to a model without a server."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, plain

if TYPE_CHECKING:
    from envpack.local import Answer, Instruments, LocalServer, LogLine, Response, Trial
    from envpack.server import Tensor
    from envpack.settings import Project, Settings
    from envpack.store import SharedStore

_MOST_INPUT = 1 << 30  # bytes
_SHOWN_TEXT = 100
_SHOWN_RESPONSES = 50  # to one request
_SHOWN_FUNCTIONS = 15
_LEVELS = {"info": "dim", "warning": "yellow", "error": "red"}
_STDERR = 2


def _checked_url(context: click.Context, option: click.Parameter, url: str) -> str:  # noqa: ARG001 - click's signature
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if url and not is_address:
        raise click.BadParameter(f"{url!r} is no address such as http://127.0.0.1:8000.")
    return url


@click.command(cls=options.GroupedCommand, short_help="Send requests to a model, without a server.")
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
@click.option(
    "--memory", is_flag=True, help="Show the most memory it had; with memray in its environment, keep a record."
)
@options.debug(
    "Wait for a debugger (debugpy) on this port of this machine, by default 5678, before the model is imported."
)
@click.option(
    "--server",
    "url",
    default="",
    callback=_checked_url,
    metavar="URL",
    help="A server that answers for models that are not in the repository or of another backend, for example "
    "http://127.0.0.1:8000.",
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
    url: str,
    said: Settings,
    repository: Path,
) -> None:
    """Run MODEL in its environment, with its Python, under envpack's stub, and send it requests.

    No server runs, and the repository is not changed but by --save-sample. Ensembles are run step by step, and requests
    of the model to other models go to those of the repository.
    """
    from envpack.local import check_can_save, check_sources, opened_instruments
    from envpack.repository import model_name
    from envpack.settings import open_project
    from envpack.workflow import project_store

    if inputs.count("-") > 1:
        raise click.BadParameter("standard input can be read once.", param_hint="--input")
    if save_sample and not inputs:
        raise click.UsageError("--save-sample needs --input: what is sent without it is saved already, or made up.")
    check_sources([source for source in inputs if source != "-"])
    if output is not None:
        check_can_save(output)
    project = open_project(repository, said)
    name = model_name(project.repository, model)
    shared = project_store(project)
    with opened_instruments(debug_port=debug or 0, profile=profile, memory=memory) as tools:
        # A debugger can hold a model for any time.
        run = _Run(project, name, shared, console, math.inf if debug else project.of().timeout)
        with _files(inputs, tools.folder) as sources:
            trial = run.trial(sources, repeat, tools, url)
        functions = tools.functions()
        record = _kept(tools.memray_file, f"{name}.memray") if memory else None
    if output is not None and trial.answers and trial.answers[-1].responses:
        from envpack.local import save_arrays

        save_arrays(trial.answers[-1].responses[-1].outputs, output)
    _show(trial, console)
    saved = _saved(trial, project.repository / name, console) if save_sample else None
    if memory:
        _show_memory(trial, record, console)
    phases = _phases(trial, run.log) if profile else {}
    if phases:
        console.show(_phase_table(phases))
    if functions:
        console.show(_functions(functions))
    for line in run.metrics:
        console.show(plain(line))
    extra = {"metrics": run.metrics, "phases": phases, "functions": functions, "memory_record": str(record or "")}
    extra["saved"] = str(saved or "")
    console.result(_document(trial, run.log.lines) | extra)
    if not trial.ok:
        sys.exit(1)


class _Run:
    """One run of a model."""

    def __init__(
        self,
        project: Project,
        name: str,
        store: SharedStore | None,
        console: Console,
        timeout: float,
    ) -> None:
        self._project = project
        self._name = name
        self._store = store
        self._console = console
        self._timeout = timeout
        self.log = _Log(console)
        self.metrics: list[str] = []

    def trial(self, inputs: tuple[str, ...], repeat: int, tools: Instruments, url: str) -> Trial:
        from envpack.local import local_server
        from envpack.repository import open_model

        folder = self._project.repository / self._name
        open_model(folder, foreign=True)  # what is wrong with it is an error before anything is made
        server = local_server(
            self._project,
            log=self.log,
            progress=self._console,
            store=self._store,
            output=_STDERR,
            instruments={self._name: tools},
            url=url,
            timeout=self._timeout,
        )
        with server:
            server.prepare(self._name)
            return self._answered(server, folder, inputs, repeat)

    def _answered(self, server: LocalServer, folder: Path, inputs: tuple[str, ...], repeat: int) -> Trial:
        # What this needs is imported while the model's process starts.
        import rich.table  # noqa: F401

        from envpack.local import ModelFailed, try_model
        from envpack.support.errors import InputError

        try:
            trial = try_model(server, self._name, folder, inputs, repeat=repeat, progress=self._console)
        except KeyboardInterrupt:
            self._console.note("[dim]cancelled; Ctrl-C again ends the model at once[/dim]")
            raise
        except ModelFailed as error:
            hint = _fix(error.text) or "correct the model; its own lines are named above"
            raise InputError(error.text, kind="model-failed", where=str(folder), hint=hint) from error
        self.metrics = server.metrics.lines()  # models remove them when they end
        return trial


@contextmanager
def _files(inputs: tuple[str, ...], folder: Path) -> Iterator[tuple[str, ...]]:
    """What is given as input, with a file in a folder for standard input. Errors of the block name it as that."""
    from envpack.support.errors import InputError

    file = folder / "standard-input.json"
    if "-" in inputs:
        file.write_bytes(sys.stdin.buffer.read(_MOST_INPUT))
    try:
        yield tuple(str(file) if source == "-" else source for source in inputs)
    except InputError as error:
        error.where = error.where.replace(str(file), "standard input")
        raise


def _kept(made: Path, name: str) -> Path | None:
    """Keep a file in the working folder; None if it was not made."""
    import shutil

    from envpack.support.replacement import replaced_file

    if not made.is_file():
        return None
    kept = Path(name).absolute()
    with replaced_file(kept) as temporary:
        shutil.copyfile(made, temporary)
    return kept


class _Log:
    """Shows what models log, and keeps it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.lines: list[LogLine] = []
        self.reports: dict[str, str] = {}  # what the stub of each model reports of its start

    def __call__(self, line: LogLine) -> None:
        if line.level == "verbose":
            self.reports[line.model] = line.text
            return
        self.lines.append(line)
        self._console.note(f"    [{_LEVELS[line.level]}]{line.level}: {plain(line.text)}[/]")


def _show(trial: Trial, console: Console) -> None:
    if not trial.answers:
        console.warned(f"nothing was sent to {trial.model}: give --input, since no request can be made up")
    for answer in trial.answers:
        for response in answer.responses[:_SHOWN_RESPONSES]:
            if response.outputs:
                console.show(_table(tuple(map(_readable, response.outputs))))
        if len(answer.responses) > _SHOWN_RESPONSES:
            console.show(f"… and {len(answer.responses) - _SHOWN_RESPONSES} more responses, see --json")
        if answer.fault or answer.difference:
            _show_wrong(answer, console)
    if trial.samples:
        console.show(plain(str(trial.samples)))
    seconds = [time for answer in trial.answers for time in answer.seconds]
    if len(seconds) > 1:
        console.show(_latency(seconds))


def _saved(trial: Trial, folder: Path, console: Console) -> Path | None:
    """Save right answers as samples of the model; returns the file."""
    from envpack.verification import SAMPLES_FILE, add_samples

    if not trial.ok:
        console.warned("no sample is saved, because an answer is wrong")
        return None
    file = folder / SAMPLES_FILE
    answered = [
        (tuple(map(_readable, answer.request.inputs)), tuple(_outputs(response) for response in answer.responses))
        for answer in trial.answers
    ]
    count = add_samples(file, trial.config, answered)
    console.note(f"saved: {plain(str(file))} has {count} sample{'' if count == 1 else 's'}")
    return file


def _outputs(response: Response) -> tuple[Tensor, ...]:
    return tuple(map(_readable, response.outputs))


def _show_wrong(answer: Answer, console: Console) -> None:
    first, *others = (answer.fault or answer.difference).splitlines()
    console.show(f"[bold red]wrong:[/bold red] {plain(first)}")
    for line in others:
        console.show(f"    {plain(line)}")
    if fix := _fix(answer.fault):
        console.show(f"[bold]  fix:[/bold] {plain(fix)}")


def _fix(text: str) -> str:
    """How to fix an error of a model, ``""`` if that is unknown."""
    from envpack.server import read_model_error
    from envpack.verification import explain

    return explain(read_model_error(text, "").text, "")[1]


def _show_memory(trial: Trial, record: Path | None, console: Console) -> None:
    if trial.peak_memory:
        console.show(f"most memory: {trial.peak_memory / 2**20:.0f} MiB")
    if record:
        console.show(f"recorded by memray: {plain(str(record))}; for example: memray flamegraph {plain(str(record))}")


def _phases(trial: Trial, log: _Log) -> dict[str, float]:
    """The seconds of each phase of a model's life; empty for an ensemble."""
    from envpack.server import stub_reports

    report = next(iter(stub_reports(log.reports.get(trial.model, "")).values()), None)
    if report is None:
        return {}
    imported, initialized = report.import_seconds or 0.0, report.initialize_seconds or 0.0
    return {
        "start": max(trial.load_seconds - imported - initialized, 0.0),
        "import": imported,
        "initialize": initialized,
        "execute": sum(sum(answer.seconds) for answer in trial.answers),
    }


def _phase_table(phases: dict[str, float]) -> Any:
    from rich.table import Table

    table = Table("phase", "seconds", box=None, header_style="dim")
    for name, seconds in phases.items():
        table.add_row(name, f"{seconds:.3f}")
    return table


def _functions(functions: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table("own s", "with calls s", "calls", "function", "where", box=None, header_style="dim")
    for found in functions[:_SHOWN_FUNCTIONS]:
        where = f"{found['file']}:{found['line']}" if found["line"] else ""
        own, total = f"{found['own_seconds']:.3f}", f"{found['seconds']:.3f}"
        table.add_row(own, total, str(found["calls"]), plain(found["function"]), plain(where))
    return table


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


def _latency(seconds: list[float]) -> Any:
    from rich.table import Table

    from envpack.verification import percentile

    at = {f"p{part}": percentile(seconds, part) for part in (50, 95, 99)}
    figures = {"mean": sum(seconds) / len(seconds), **at, "longest": max(seconds)}
    table = Table("requests", *(f"{name} ms" for name in figures), box=None, header_style="dim")
    table.add_row(str(len(seconds)), *(f"{value * 1e3:.3f}" for value in figures.values()))
    return table


def _document(trial: Trial, log: list[LogLine]) -> dict[str, Any]:
    return {
        "model": trial.model,
        "ok": trial.ok,
        "load_seconds": trial.load_seconds,
        "peak_memory": trial.peak_memory,
        "samples": dataclasses.asdict(trial.samples) if trial.samples else None,
        "answers": [_answer(answer) for answer in trial.answers],
        "log": [{"level": line.level, "text": line.text, "place": line.place} for line in log],
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
        "difference": answer.difference,
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    data = [item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else item for item in tensor.data]
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": data}
