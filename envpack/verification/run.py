"""Runs a verification: starts a server, verifies each model and the server as a whole, stops the server."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from envpack.inspection.facts import Host
from envpack.inspection.files import find_missing_environment
from envpack.inspection.preflight import find_unsafe_archive, preflight_model
from envpack.inspection.state import known_state
from envpack.inspection.stubs import fit_findings
from envpack.repository.code import called_models, sends_requests
from envpack.repository.folders import find_folder
from envpack.repository.model import Model
from envpack.repository.placement import backends_folder
from envpack.repository.selection import in_loading_order, open_models
from envpack.server.choice import GPUS, ServerSpec, choose_runtime
from envpack.server.interface import Runtime, Server, StopResult
from envpack.server.kserve import Client, RequestError
from envpack.server.log import not_unloaded
from envpack.server.stale_runs import temporary_folder
from envpack.settings.project import Project, open_project
from envpack.settings.releases import Release, all_releases, find_release, release_of_server
from envpack.settings.table import DEFAULT_RELEASE, Settings
from envpack.support.errors import EnvpackError, Finding, InputError, ModelsError, ServerError
from envpack.support.folders import whole_path
from envpack.support.interruption import once_interruptible
from envpack.support.progress import SILENT, Progress
from envpack.support.replacement import keep_last
from envpack.support.text import enumerated
from envpack.verification.checks.server import (
    check_again,
    check_finalize,
    check_home,
    check_repository,
    check_restarts,
    check_runtime,
    check_shared_memory,
    check_together,
    check_unchanged,
    check_written,
    failed_together,
    stamps_of,
    unload_all,
)
from envpack.verification.gpu import check_gpu, choose_probed_model, run_probe, skip_probe, write_probe
from envpack.verification.judge import Judge, JudgeOptions
from envpack.verification.verdict import Check, Failure, ModelVerdict, Verdict, check, passed, skipped, unchecked


def verify(
    repository: Path | str,
    models: Sequence[str] = (),
    *,
    spec: ServerSpec | None = None,
    progress: Progress = SILENT,
    runtime: Runtime | None = None,
    project: Project | None = None,
) -> Verdict:
    """Verify models of a repository in a real server on this machine.

    Args:
        repository: the model repository.
        models: names of the models to verify, in addition to those that they run as ensembles or call; all by default.
        spec: how to run the server and verify.
        progress: receives each step.
        runtime: how to run the server; chosen according to ``spec`` by default.
        project: settings of the repository, which can name the models' requirements; read from its ``envpack.toml``
            by default.

    Returns:
        The verdict. A faulty model makes it negative and raises no exception.

    Raises:
        InputError: the repository or a model is invalid on disk.
        ServerError: there is no server, or it could not be started.
    """
    spec = spec or ServerSpec()
    repository = whole_path(Path(repository))
    chosen, errors = models_to_load(repository, models)
    runtime = runtime or choose_runtime(spec, repository, chosen)
    project = project or open_project(repository)
    with once_interruptible():
        return _Verification(project, chosen, errors, spec, progress, runtime, whole=not models).run()


@dataclasses.dataclass(frozen=True)
class _Verification:
    project: Project
    models: tuple[Model, ...]
    errors: Mapping[str, EnvpackError]  # of models that cannot be read
    spec: ServerSpec
    progress: Progress
    runtime: Runtime
    whole: bool  # whether these are all models of the repository

    @property
    def said(self) -> Settings:
        return self.spec.settings

    def run(self) -> Verdict:
        began, started = datetime.datetime.now(datetime.UTC), time.monotonic()
        before, files = stamps_of(self.models), stamps_of(self.models, "*")
        second_repository = temporary_folder() if self.said.gpu else contextlib.nullcontext()
        with second_repository as probe, contextlib.ExitStack() as servers:
            start = functools.partial(self._start, servers, probe)
            server, client, version = start()
            release = release_of_server(version) or all_releases().get(self.runtime.release)  # a tag may be any text
            judge = self._judge(server, client, release)
            rejected = tuple(judge.reject(name, error) for name, error in self.errors.items())
            judged, died = self._judge_all(judge, start)
            server, client, verdicts = judge.server, judge.client, rejected + judged
            loaded = [verdict.name for verdict in verdicts if verdict.is_verified]
            all_right = not died and all(verdict.ok for verdict in verdicts)
            elsewhere = check_runtime(self.runtime)
            checks = [*died, *([elsewhere] if elsewhere else [])]
            checks += self._checks_of_release(release, version)
            checks += [check_repository(self.project.repository)] if self.whole else []
            checks += self._gpu_checks(server, client, probe) if probe and not judge.stuck else ()
            checks += self._server_checks(judge, loaded) if all_right and not judge.stuck else ()
            seconds = time.monotonic() - started
            kept, leftovers = self._end(server, client, judge, loaded, checks)
            checks += filter(None, (check_unchanged(self.models, before), check_written(self.models, files)))
            log = keep_last("last-server.log", server.log(), mode=0o600)
        made = all(check.status != "unchecked" for check in checks) and all(verdict.complete for verdict in verdicts)
        return Verdict(
            ok=all_right and made and all(check.ok for check in checks) and not leftovers,
            repository=str(self.project.repository),
            release=release.name if release else "",
            server=version,
            runtime=self.runtime.name,
            image=self.runtime.image,
            models=verdicts,
            checks=tuple(checks),
            leftovers=leftovers,
            started=began.isoformat(timespec="seconds"),
            seconds=time.monotonic() - started,
            verdict_seconds=seconds,
            kept=kept,
            log=log,
        )

    def _judge_all(
        self, judge: Judge, start: Callable[[], tuple[Server, Client, str]]
    ) -> tuple[tuple[ModelVerdict, ...], list[Check]]:
        """The verdict on each model, and a failed check for each that ended the server only because others were loaded.

        A model gets another server if it would wait in this one behind others, or find that it has ended: its verdict
        would be theirs.
        """
        verdicts, died = list[ModelVerdict](), list[Check]()

        def go_on_in_another() -> None:
            judge.server.stop(force=True)
            judge.go_on_in(*start()[:2])

        for model in self.models:
            if judge.server.ended() and verdicts:
                verdicts[-1] = judge.withdraw(verdicts[-1])
            if judge.server.ended() or judge.stuck >= self.spec.load_threads(self.models):
                go_on_in_another()
            verdict = self._verify_model(judge, model)
            failure = verdict.failure
            self._require_repository(failure)
            if failure and failure.kind in ("server-died", "too-many-files") and not judge.is_alone:
                go_on_in_another()
                verdict = self._verify_model(judge, model)
                died += [failed_together(model.name, failure)] if verdict.ok else []
            verdicts.append(verdict)
        return tuple(verdicts), died

    def _require_repository(self, failure: Failure | Check | None) -> None:
        """Blame no model and no limit for a failure after the repository was removed; the server reports no reason."""
        if failure and not self.project.repository.is_dir():
            fix = "put it back, and verify it while no other program moves or removes it"
            what = "the model repository was removed while it was verified"
            raise InputError("repository-missing", what, fix, str(self.project.repository))

    def _start(self, servers: contextlib.ExitStack, probe: Path | None) -> tuple[Server, Client, str]:
        self.progress.begin("start Triton")
        began = time.monotonic()
        server = servers.enter_context(self.runtime.start(self.project.repository, probe))
        client = Client(server.url, timeout=self.said.timeout)
        version = _version(client)
        self.progress.end(f"Triton {version}, {time.monotonic() - began:.1f} s")
        return server, client, version

    @check("release", of="server", step="start")
    def _checks_of_release(self, release: Release | None, version: str) -> Iterator[Check]:
        """Only if the server is of another release than `--triton` or `envpack.toml` names: not checked; what keeps a
        model from that release, by its files, is its failure
        """
        wanted = self.said.triton
        if wanted and (release is None or release.name != wanted):
            served = release.name if release else version
            what = f"Triton {wanted} is named, and this server is {served}, which proves nothing for {wanted}"
            yield unchecked("release", what, f"verify with the image of {wanted}: --runtime docker --set pull=true")

    def _judge(self, server: Server, client: Client, release: Release | None) -> Judge:
        says_so = release is None or self.runtime.release in ("", release.name)
        mismatches = functools.partial(
            preflight_model,
            default_stub=self.runtime.default_stub,
            release=release,
            host=self.runtime.host if says_so else Host(f"the image {self.runtime.image}", "", "", ""),
            backends=self.spec.backends,
        )

        def preflight(model: Model) -> tuple[Finding, ...]:
            if not model.has_stub:
                return ()
            unusable = find_missing_environment(model) or find_unsafe_archive(model, release)
            return (unusable,) if unusable else (*mismatches(model), *self._mismatches_of_wanted(model, release))

        judging = JudgeOptions(self.said.timeout, self.said.requests, self.spec.preload, release)
        state = functools.partial(known_state, self.project, release=release or find_release(DEFAULT_RELEASE))
        return Judge(server, client, judging, preflight, state)

    def _mismatches_of_wanted(self, model: Model, served: Release | None) -> Iterator[Finding]:
        """What keeps a model from the release that was asked for, if the server is of another one."""
        name = self.said.triton
        if not name or (served and served.name == name):
            return
        backends = self.spec.backends or backends_folder(self.project)
        for finding in fit_findings(model, find_release(name), backends):
            if finding.severity == "error":
                yield dataclasses.replace(finding, what=f"for Triton {name}: {finding.what}")

    def _verify_model(self, judge: Judge, model: Model) -> ModelVerdict:
        self.progress.begin(f"verify {model.name}")
        verdict = judge.judge(model)
        self.progress.end(_outcome(verdict))
        return verdict

    def _gpu_checks(self, server: Server, client: Client, probe: Path) -> Iterator[Check]:
        self.progress.begin("check the GPU")
        has_gpu = check_gpu(server, self.spec.all_variables().get(GPUS))
        yield has_gpu
        like = choose_probed_model(self.models)
        environment = like.environment if like else None
        if has_gpu.ok and like and environment:
            write_probe(probe, like, server.server_path(environment))
            tensors = run_probe(client, like, self.said.timeout)
        elif has_gpu.ok:
            tensors = skip_probe(self.models)
        else:
            tensors = skipped("gpu-tensors", "not checked without a GPU")
        yield tensors
        self.progress.end(tensors.evidence if has_gpu.ok else has_gpu.evidence)

    def _server_checks(self, judge: Judge, names: Sequence[str]) -> Iterator[Check]:
        """Checks of all loaded models together; only made if each model passed alone."""
        server, client = judge.server, judge.client
        yield from filter(None, [check_shared_memory(server), check_home(server)])
        since = server.log_size()
        self.progress.begin("unload")
        unloaded = unload_all(client, server, names)
        self.progress.end(unloaded.evidence)
        if self.spec.together and names and unloaded.ok:  # else what is left could keep a model from its second load
            self.progress.begin("load all models at the same time" if len(names) > 1 else "load the model again")
            loaded = judge.check_answers(names, self._check_second_load(server, client, names))
            self._require_repository(None if loaded.ok else loaded)
            yield loaded
            unloaded = unload_all(client, server, names)
            self.progress.end(loaded.evidence)
        yield unloaded
        ended = [check_restarts(server), check_finalize(server, self.models, server.log(since))]
        yield from filter(None, ended)

    def _check_second_load(self, server: Server, client: Client, names: Sequence[str]) -> Check:
        if len(names) == 1:
            return check_again(client, names[0], self.said.timeout)
        together = check_together(client, names, self.said.timeout)
        if together.ok or server.ended():
            return together
        # One after the other, as the first time: only if that succeeds do they compete.
        unload_all(client, server, names)
        again = (check_again(client, name, self.said.timeout) for name in names)
        return next((check for check in again if not check.ok), together)

    @check("stop", of="server", step="unload", condition="The server exits with status 0 and leaves nothing behind")
    def _end(
        self, server: Server, client: Client, judge: Judge, loaded: Sequence[str], checks: list[Check]
    ) -> tuple[str, tuple[str, ...]]:
        """Stop the server, or keep it with every model loaded; returns how to reach it, and the leftovers."""
        if self.said.keep and not judge.stuck and not server.ended():
            for name in loaded:
                with contextlib.suppress(RequestError):  # the verdict contains the load failure
                    client.load(name, timeout=self.said.timeout)
            return server.keep(), ()
        self.progress.begin("stop Triton")
        stopped = server.stop(force=judge.stuck > 0)
        self.progress.end(_stop_outcome(stopped))
        leftovers = () if judge.stuck else _stop_faults(stopped, server.log())
        if not stopped.forced and not leftovers:
            checks.append(passed("stop", f"stopped in {stopped.seconds:.1f} s with exit status 0, nothing left behind"))
        return "", leftovers


def _version(client: Client) -> str:
    try:
        return client.server_version()
    except RequestError as error:
        what = f"the server does not respond: {error.message}"
        raise ServerError("server-failed", what, "run the command again with more time: --timeout 600") from error


def _stop_faults(stopped: StopResult, log: str) -> tuple[str, ...]:
    late = not_unloaded(log)
    why = f": {enumerated(late)} did not end in time; check finalize" if late else ""
    killed = f"a server that did not stop within {stopped.seconds:.0f} s, and was killed"
    status = killed if stopped.forced else f"exit status {stopped.exit_code}"
    return (*stopped.leftovers, *([f"{status}{why}"] if stopped.exit_code else []))


def _stop_outcome(stopped: StopResult) -> str:
    if stopped.forced:
        return "killed, leftovers removed"
    return f"left behind: {'; '.join(stopped.leftovers)}" if stopped.leftovers else "nothing left behind"


def _outcome(verdict: ModelVerdict) -> str:
    if verdict.failure:
        return verdict.failure.reason
    if not verdict.is_verified:
        return verdict.checks[0].evidence
    samples = verdict.samples
    answered = f", {samples}" if samples else ""
    return f"ready in {verdict.load_seconds:.1f} s{answered}"


def models_to_load(repository: Path, names: Sequence[str]) -> tuple[tuple[Model, ...], dict[str, EnvpackError]]:
    """The named models and those that they need, each after those that it needs; and the errors of unreadable ones."""
    wanted, errors = open_models(repository, names)
    if not wanted:
        ModelsError.raise_any(errors, len(errors))

    def model_named(name: str) -> Model | None:
        folder = None if name in errors else find_folder(repository, name)
        if folder is None:
            return None
        needed, broken = open_models(repository, [name])
        errors.update(broken)
        return needed.get(name)

    called, may_call_any = (lambda model: called_models(model.folder)), (lambda model: sends_requests(model.folder))
    return in_loading_order(list(wanted.values()), model_named, called, may_call_any), errors
