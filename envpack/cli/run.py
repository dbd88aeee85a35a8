"""`envpack run` and `envpack test`: send requests to a model, and run the tests of models."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, advice, plain, table

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.settings.table import Settings
    from envpack.testing import Answer, ModelRun, Tensor, Trial

_MOST_INPUT = 1 << 30  # bytes
_SHOWN_TEXT = 100
_SHOWN_RESPONSES = 50  # to one request
_SHOWN_FUNCTIONS = 15
_LEVELS = {"info": "dim", "warning": "yellow", "error": "red"}
_REST = "envpack.cli.test"
_STDERR = 2


@click.command(cls=options.GroupedCommand)
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
    type=options.PLACE,
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
def run(
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
    from envpack.settings.project import open_project
    from envpack.testing import run_model
    from envpack.workflow.project import model_names, project_store

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
    if done.saved:
        console.note(f"saved: {plain(str(done.saved))} has what was sent, and the answers")
    elif save_sample:
        console.warned("no sample is saved, because an answer is wrong")
    if memory:
        _show_memory(done, console)
    phases = done.phases if profile else {}
    _show_profile(phases, done.functions, console)
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
        has_inputs = bool(trial.config.inputs)
        fix = "give --input, since no request can be made up" if has_inputs else "declare its inputs in config.pbtxt"
        console.warned(f"nothing was sent to {trial.model}: {fix}")
    for answer in trial.answers:
        if answer.made_up:
            before = f", after {answer.refused} that it refused" if answer.refused and not answer.fault else ""
            console.note(f"made up and sent: {plain(answer.made_up)}{before}")
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
        shown = table("requests", *(f"{name} ms" for name in figures), header_style="dim")
        count = sum(len(answer.seconds) for answer in trial.answers)
        shown.add_row(str(count), *(f"{value * 1e3:.3f}" for value in figures.values()))
        console.show(shown)


def _show_wrong(answer: Answer, console: Console) -> None:
    first, *others = (answer.fault or answer.difference).splitlines()
    lines = [f"[bold red]wrong:[/bold red] {plain(first)}", *(f"    {plain(line)}" for line in others)]
    for line in (*lines, *([f"[bold]  fix:[/bold] {advice(answer.fix)}"] if answer.fix else [])):
        console.show(line, even_if_quiet=True)


def _show_memory(done: ModelRun, console: Console) -> None:
    if done.peak_memory:
        console.show(f"most memory: {done.peak_memory / 2**20:.0f} MiB")
    if done.memory_record:
        record = plain(str(done.memory_record))
        console.show(f"recorded by memray: {record}; for example: memray flamegraph {record}")


def _show_profile(phases: Mapping[str, float], functions: Sequence[dict[str, Any]], console: Console) -> None:
    if phases:
        shown = table("phase", "seconds", header_style="dim")
        for phase, seconds in phases.items():
            shown.add_row(phase, f"{seconds:.3f}")
        console.show(shown)
    if functions:
        shown = table("own s", "with calls s", "calls", "function", "where", header_style="dim")
        for found in functions[:_SHOWN_FUNCTIONS]:
            where = f"{found['file']}:{found['line']}" if found["line"] else ""
            own, total = f"{found['own_seconds']:.3f}", f"{found['seconds']:.3f}"
            shown.add_row(own, total, str(found["calls"]), plain(found["function"]), plain(where))
        console.show(shown)


def _table(tensors: tuple[Tensor, ...]) -> Table:
    found = table("output", "type", "shape", "elements", header_style="dim")
    for tensor in tensors:
        elements = ", ".join(map(_element, tensor.data[:_SHOWN_TEXT]))
        shown = elements if len(elements) <= _SHOWN_TEXT else elements[: _SHOWN_TEXT - 3] + "..."
        found.add_row(plain(tensor.name), tensor.datatype, str(list(tensor.shape)), plain(shown))
    return found


def _element(value: object) -> str:
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "backslashreplace"))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


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
        "samples": trial.samples,
        "answers": [_answer(answer) for answer in trial.answers],
        "log": [{"level": line.level, "text": line.text, "place": line.place} for line in done.log],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "responses": [
            {
                "outputs": tensors,
                "error": response.error,
                "parameters": json.loads(response.parameters or "{}"),
            }
            for response, tensors in zip(answer.responses, answer.outputs, strict=True)
        ],
        "seconds": answer.seconds,
        "fault": answer.fault,
        "difference": answer.difference,
        "made_up": answer.made_up,
        "refused": answer.refused,
    }


class _WithRest(click.Command):
    """Keeps what follows ``--`` for pytest."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, rest = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        ctx.meta[_REST] = rest
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PYTEST_ARGUMENT...]"]


@click.command(cls=_WithRest)
@options.models
@click.option("--local", "is_local", is_flag=True, help="Run the models without a server.")
@options.settings("test")
@options.repository
@options.with_console
@click.pass_context
def test(
    context: click.Context,
    models: tuple[str, ...],
    console: Console,
    *,
    said: Settings,
    is_local: bool,
    repository: Path,
) -> int:
    """Run the tests of models by pytest: MODEL/tests and MODEL/test_*.py.

    The fixture triton_model loads each MODEL in its environment, on a real Triton server whenever one can be started.
    With --local, and where there is no server, it runs the Python models themselves. What follows -- goes to pytest.
    """
    from envpack.settings.project import open_project
    from envpack.testing import run_tests
    from envpack.workflow.project import model_names

    if said.server and is_local:
        raise click.UsageError("--server names a server, and --local wants none: give one of them.")

    def show(where: str, on_server: bool) -> None:
        console.note(f"models run {plain(where)}")
        if not on_server and not is_local:
            console.warned("no server can be started here: what only one can do is not tested; see envpack doctor")

    project = open_project(repository, said)
    done = run_tests(
        project,
        model_names(project, models),
        is_local=is_local,
        show=show,
        arguments=(*(("--quiet",) if console.quiet else ()), *context.meta[_REST]),
        output=_STDERR if console.as_json else None,
    )
    without = [name for name in done.models if all(test["outcome"] == "skipped" for test in done.of(name))]
    if without:
        console.note(f"[dim]no test ran of:[/dim] {plain(', '.join(without))}")
    tested = [{"name": name, "tests": done.of(name)} for name in done.models]
    console.result({"ok": done.ok, "on_server": done.on_server, "where": done.where, "models": tested})
    return 0 if done.ok else 1
