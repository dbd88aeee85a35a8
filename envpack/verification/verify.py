"""Boots a server on a model repository, asks every model, and says what is fit to serve."""

from __future__ import annotations

import contextlib
import functools
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envpack.errors import InputError, ServerError
from envpack.preflight import preflight_model
from envpack.progress import Progress, Silent
from envpack.releases import all_releases, release_of_server
from envpack.repository import STUB_NAME, Model, find_models, no_models, open_model
from envpack.verification.asking.kserve import Client, RequestError
from envpack.verification.interrupts import interruptible
from envpack.verification.judge import Judge
from envpack.verification.runtimes.interface import Runtime, Stopped
from envpack.verification.runtimes.process import ProcessRuntime
from envpack.verification.runtimes.server_location import find_server
from envpack.verification.verdict import ModelVerdict, Verdict


@dataclass(frozen=True)
class VerifyOptions:
    """How to verify.

    Attributes:
        server: a ``tritonserver`` program or installation; None looks for one, see `find_server`.
        port: HTTP port on 127.0.0.1; None chooses a free one.
        load_timeout: seconds that one model may take to load.
        infer_timeout: seconds that one request may take.
        environment: further environment variables for the server.
        extra_backends: folder of further backend folders, for models that name one.

    """

    server: Path | None = None
    port: int | None = None
    load_timeout: float = 120.0
    infer_timeout: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)
    extra_backends: Path | None = None


def verify(
    repository: Path,
    models: Sequence[str] = (),
    *,
    options: VerifyOptions | None = None,
    progress: Progress | None = None,
    runtime: Runtime | None = None,
) -> Verdict:
    """Verify the models of a repository in a real server on this machine.

    Args:
        repository: folder whose sub-folders are models.
        models: names of the models to verify, with those that their ensembles need; all by default.
        options: how to verify.
        progress: told of each step.
        runtime: where to run the server; a process of this machine by default.

    Raises:
        InputError: the repository or a model is wrong as it stands, before any server was asked.
        ServerError: there is no server, or it could not be started.

    """
    options, progress = options or VerifyOptions(), progress or Silent()
    repository = repository.absolute()
    chosen = _in_loading_order(repository, models)
    runtime = runtime or ProcessRuntime(
        find_server(options.server), options.port, options.environment, options.extra_backends
    )
    started = time.monotonic()
    with interruptible(), _kept_modes(chosen):
        return _verify(repository, chosen, options, progress, runtime, started)


def _verify(
    repository: Path,
    models: tuple[Model, ...],
    options: VerifyOptions,
    progress: Progress,
    runtime: Runtime,
    started: float,
) -> Verdict:
    progress.begin("start Triton")
    with runtime.start(repository) as server:
        client = Client(server.url, timeout=options.infer_timeout)
        try:
            version = client.server_version()
        except RequestError as error:
            raise ServerError(
                f"the server does not answer: {error.message}",
                kind="server-failed",
                hint="run the command again with more time: --infer-timeout 120",
            ) from error
        progress.end(f"Triton {version}, {time.monotonic() - started:.1f} s")
        release = all_releases().get(runtime.release) or release_of_server(version)
        preflight = functools.partial(
            preflight_model, default_stub=runtime.default_stub, release=release, host=runtime.host
        )
        judge = Judge(server, client, options.load_timeout, release, preflight)
        verdicts: list[ModelVerdict] = []
        for model in models:
            progress.begin(f"verify {model.name}")
            verdicts.append(judge.judge(model))
            progress.end(_outcome(verdicts[-1]))
        judged = time.monotonic()
        progress.begin("stop Triton")
        stopped = server.stop(force=judge.stuck)
        leftovers = _unclean(stopped)
        progress.end(_stop_outcome(stopped))
    return Verdict(
        ok=all(verdict.ok for verdict in verdicts) and not leftovers,
        release=release.name if release else "",
        server=version,
        runtime=runtime.name,
        models=tuple(verdicts),
        leftovers=leftovers,
        seconds=time.monotonic() - started,
        verdict_seconds=judged - started,
    )


@contextlib.contextmanager
def _kept_modes(models: Sequence[Model]) -> Iterator[None]:
    """Give the users' stubs back the modes they had: a server makes a stub that it mistrusts 0100."""
    stubs = [model.folder / STUB_NAME for model in models]
    before = {stub: stat.S_IMODE(stub.stat().st_mode) for stub in stubs if stub.is_file()}
    try:
        yield
    finally:
        for stub, mode in before.items():
            with contextlib.suppress(OSError):
                if stat.S_IMODE(stub.stat().st_mode) != mode:
                    stub.chmod(mode)


def _unclean(stopped: Stopped) -> tuple[str, ...]:
    """What speaks against the models in how the server stopped; nothing if it was not given the time to stop."""
    if stopped.forced:
        return ()
    status = (f"exit status {stopped.exit_code}",) if stopped.exit_code else ()
    return (*stopped.leftovers, *status)


def _stop_outcome(stopped: Stopped) -> str:
    if stopped.forced:
        return "killed, and cleaned up after it"
    return f"left behind: {'; '.join(stopped.leftovers)}" if stopped.leftovers else "nothing left behind"


def _outcome(verdict: ModelVerdict) -> str:
    if verdict.failure:
        return verdict.failure.reason
    samples = verdict.samples
    answered = f", {samples.right} {samples.noun} right of {samples.sent}" if samples else ""
    return f"ready in {verdict.load_seconds:.1f} s{answered}"


def _in_loading_order(repository: Path, names: Sequence[str]) -> tuple[Model, ...]:
    """The models asked for and those that they run, each after the ones that it runs."""
    wanted = [open_model(repository / name) for name in names] or list(find_models(repository))
    if not wanted:
        raise no_models(repository)
    ordered: dict[str, Model] = {}
    for model in wanted:
        _add_with_steps(repository, model, ordered, ())
    return tuple(ordered.values())


def _add_with_steps(repository: Path, model: Model, ordered: dict[str, Model], users: tuple[str, ...]) -> None:
    if model.name in users:
        raise InputError(
            f"the ensembles {' -> '.join((*users, model.name))} run each other",
            kind="ensemble-cycle",
            where=str(model.folder),
            hint="take one of them out of the steps of another",
        )
    if model.name in ordered:
        return
    for step in model.steps:
        if step not in ordered and (repository / step).is_dir():
            _add_with_steps(repository, open_model(repository / step), ordered, (*users, model.name))
    ordered[model.name] = model
