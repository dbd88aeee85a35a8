"""`envpack run`: one model is loaded and sent requests, locally or, where only a server can do that, on one."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envpack.local.connection import MORE_TIME
from envpack.local.model_process import LogLine
from envpack.local.running import local_server, needs_server
from envpack.local.starting import Instruments, opened_instruments
from envpack.local.values import readable
from envpack.repository.code import called_models
from envpack.repository.model import examine_model, open_model
from envpack.repository.selection import model_name, needed_first
from envpack.server.interface import Runtime
from envpack.server.log import STUB_REPORT, stub_reports
from envpack.settings.project import Project
from envpack.support.errors import InputError, ServerError, UsageError
from envpack.support.folders import real_path
from envpack.support.progress import SILENT, Progress
from envpack.support.replacement import replaced_file
from envpack.testing.model import ModelError, Models, check_can_save, save_arrays
from envpack.testing.opening import LOCALLY, LocalModels, find_runtime, open_models, where
from envpack.testing.trial import Trial, check_sources, fix_of, try_model
from envpack.verification.hidden_files import fix_of_pointer, fix_of_written_path
from envpack.verification.samples import SAMPLES_FILE, add_samples

if TYPE_CHECKING:
    from envpack.store.shared import SharedStore

_STDERR = 2


@dataclass(frozen=True, kw_only=True)
class ModelRun:
    """What became of one run."""

    trial: Trial  # the answers, and what is wrong with them
    where: str  # where the model ran, in words
    log: Sequence[LogLine]  # what it and the models that it called have logged
    phases: dict[str, float] = field(default_factory=dict)  # seconds of each phase of its life; empty on a server
    peak_memory: int = 0  # the most physical memory that its process has had, in bytes; 0 on a server
    # The functions that took longest, the slowest first; empty without a profile.
    functions: Sequence[dict[str, Any]] = ()
    memory_record: Path | None = None  # memray's record, None without one
    saved: Path | None = None  # the file of samples to which the answers were added, None if they were not


@dataclass(frozen=True, kw_only=True)
class _Run:
    project: Project
    name: str
    inputs: Sequence[str]
    repeat: int
    show: Callable[[str, str], None]
    progress: Progress
    store: SharedStore | None
    timeout: float
    lines: list[LogLine] = field(default_factory=list)
    reports: dict[str, str] = field(default_factory=dict)

    def log(self, line: LogLine) -> None:
        """Take a line of a model's log; a stub reports its start as a verbose one. A server shows no verbose lines."""
        if line.level == "verbose":
            if line.text.startswith(STUB_REPORT):
                self.reports[line.model] = line.text
            return
        self.lines.append(line)
        self.show(line.level, line.text)


def run_model(
    project: Project,
    name: str,
    inputs: Iterable[str | Path] = (),
    *,
    debug_port: int = 0,
    profile: bool = False,
    memory_record: Path | None = None,
    repeat: int = 1,
    show: Callable[[str, str], None] = lambda level, text: None,  # noqa: ARG005
    progress: Progress = SILENT,
    store: SharedStore | None = None,
    timeout: float = 120.0,
    output: Path | None = None,
    save_sample: bool = False,
) -> ModelRun:
    """Load a model and send it requests: ``inputs``, or its own samples, or one that is made up.

    With a ``debug_port`` the model waits there for a debugger, for any time. That, ``profile`` and ``memory_record``,
    a file for what memray records, need a run without a server. ``timeout`` is for the load and for each answer.
    ``output`` receives the outputs of the last response, unless that is an error. ``save_sample`` adds what was sent
    and answered to the samples of the model, unless an answer is wrong.
    """
    # What is wrong is an error before anything is made.
    name, sources = model_name(project.repository, name), tuple(map(str, inputs))
    if repeat < 1:
        raise UsageError("usage", f"repeat is {repeat}, and no request would be sent", "give 1 or more")
    check_sources(sources)
    if output is not None:
        check_can_save(output)
    open_model(project.repository / name, foreign=True)
    run = _Run(
        project=project,
        name=name,
        inputs=sources,
        repeat=repeat,
        show=show,
        progress=progress,
        store=store,
        timeout=math.inf if debug_port else timeout,
    )
    reason = _server_reason(project, name)
    try:
        with opened_instruments(debug_port=debug_port, profile=profile, memory=memory_record is not None) as tools:
            done = _served(run, _runtime(project, reason, tools), reason) if reason else _local(run, tools)
            record = _kept(tools.memray_file, memory_record)
            done = dataclasses.replace(done, functions=tools.functions(), memory_record=record)
    except ModelError as error:
        folder = project.repository / name
        hint = error.fix or _moved(error.text, project) or fix_of(error.text) or fix_of_pointer(folder)
        at = "correct the model; its own lines are named above"
        hint = hint or ("find what blocks there" if MORE_TIME in error.text else "")
        hint = hint or (at if "\n" in error.text else f"look for a fault in its files: `envpack inspect {name}`")
        raise InputError("model-failed", error.text, hint, str(folder)) from error
    responses = done.trial.answers[-1].responses if done.trial.answers else ()
    if output is not None and responses and responses[-1].error is None:  # an error leaves an earlier file as it is
        save_arrays(responses[-1].outputs, output)
    if save_sample and done.trial.ok:
        file = project.repository / name / SAMPLES_FILE
        answered = [(tuple(map(readable, answer.request.inputs)), answer.outputs) for answer in done.trial.answers]
        add_samples(file, done.trial.config, answered)
        done = dataclasses.replace(done, saved=file)
    return done


def _kept(made: Path, record: Path | None) -> Path | None:
    if record is None or not made.is_file():
        return None
    with replaced_file(record) as temporary:
        shutil.copyfile(made, temporary)
    return record


def _moved(text: str, project: Project) -> str:
    """What to do about a path in an error that is one of the repository in a container."""
    here = str(real_path(project.repository))
    return fix_of_written_path(
        text, project.repository, here, lambda paths: next(filterfalse(os.path.exists, paths), "")
    )


def _server_reason(project: Project, name: str) -> str:
    """Why a server is needed: one is named, or which model needs one, of it and those that it calls; ``""`` if not."""
    if project.of().server is not None:
        return "--server names one"
    for needed in needed_first([name], lambda model: called_models(project.repository / model)):
        model, _ = examine_model(project.repository / needed)
        if model is not None and (reason := needs_server(model)):
            return f"{needed} {reason}"
    return ""


def _runtime(project: Project, reason: str, tools: Instruments) -> Runtime:
    if tools.are_used:
        what = f"on a server, --debug, --profile and --memory cannot be used: {reason}"
        fix = "leave them out, or use `envpack dev --debug`"
        raise UsageError("usage", what, fix)
    runtime = find_runtime(project)
    if runtime is None:
        what = f"a server is needed, and none can be started here: {reason}"
        fix = "envpack doctor says how to install one"
        raise ServerError("server-missing", what, fix)
    return runtime


def _served(run: _Run, runtime: Runtime, reason: str) -> ModelRun:
    place = where(runtime)
    run.progress.detail(f"{place}, since {reason}")
    models = open_models(run.project, runtime, timeout=run.timeout, progress=run.progress, store=run.store)
    with contextlib.closing(models):
        try:
            trial = _tried(run, models)
        except KeyboardInterrupt:
            models.kill()
            raise
        for text in models.logged(run.name, 0):
            run.log(LogLine("info", text, "", run.name))
    return ModelRun(trial=trial, where=place, log=run.lines)


def _local(run: _Run, tools: Instruments) -> ModelRun:
    server = local_server(
        run.project,
        log=run.log,
        progress=run.progress,
        store=run.store,
        output=_STDERR,
        instruments={run.name: tools},
        timeout=run.timeout,
    )
    with server:
        server.prepare(run.name)
        models = LocalModels(server, run.lines)
        try:
            trial = _tried(run, models)
        except KeyboardInterrupt:
            run.progress.detail("cancelled; Ctrl-C again ends the model at once")
            raise
        peak, model = 0, server.started(run.name)
        if model is not None:
            trial = dataclasses.replace(trial, load_seconds=model.load_seconds)
            peak = model.process.peak_memory()
    return ModelRun(trial=trial, where=LOCALLY, log=run.lines, phases=_phases(trial, run.reports), peak_memory=peak)


def _tried(run: _Run, models: Models) -> Trial:
    folder = run.project.repository / run.name
    return try_model(models, run.name, folder, run.inputs, repeat=run.repeat, progress=run.progress)


def _phases(trial: Trial, reports: dict[str, str]) -> dict[str, float]:
    report: Any = next(iter(stub_reports(reports.get(trial.model, "")).values()), None)
    if report is None:
        return {}
    imported, initialized = report.import_seconds or 0.0, report.initialize_seconds or 0.0
    return {
        "start": max(trial.load_seconds - imported - initialized, 0.0),
        "import": imported,
        "initialize": initialized,
        "execute": sum(sum(answer.seconds) for answer in trial.answers),
    }
