"""Verifies models one after the other in a running server."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envpack.inspection.preflight import find_damage
from envpack.inspection.state import BuildState
from envpack.repository.code import called_models, sends_requests
from envpack.repository.folders import find_folder, looks_like_model
from envpack.repository.model import UNADDRESSABLE, Model
from envpack.repository.placement import linked_path_fault
from envpack.server.interface import Server
from envpack.server.kserve import Client, RequestError
from envpack.server.log import last_lines
from envpack.settings.releases import Release
from envpack.support.errors import EnvpackError, Finding
from envpack.verification.checks import compared, process
from envpack.verification.choice import Chosen
from envpack.verification.hidden_files import explain_hidden, find_missing_file
from envpack.verification.loading import (
    LoadResult,
    MissingBackends,
    load_model,
    server_died,
)
from envpack.verification.measurements import measure_environment, read_phases
from envpack.verification.stub_processes import dead_stubs
from envpack.verification.verdict import (
    CHECKS,
    Check,
    Failure,
    ModelVerdict,
    check,
    failed,
    passed,
    unchecked,
    warning,
)
from envpack.verification.versions import Inference, InferenceResult

_UNREADY = re.compile(r"Model '(?P<name>[^'\n]{1,300})' is not ready")
_STUCK_KINDS = frozenset({"stub-died", "inference-timeout"})
_LOG_LINES = 40
_LETTERS = "letters, digits, '_', '-' and '.'"


@dataclass(frozen=True)
class JudgeOptions:
    """Options for the verification of each model."""

    timeout: float  # time limit in seconds for loading one model
    requests: int = 20  # maximum number of timed requests
    preload: tuple[Path, ...] = ()  # libraries in the server's LD_PRELOAD
    release: Release | None = None  # the server's release; None if unknown


class Judge:
    """Loads models, sends requests to them, and returns a verdict on each."""

    def __init__(
        self,
        server: Server,
        client: Client,
        options: JudgeOptions,
        preflight: Callable[[Model], Sequence[Finding]] = lambda _: (),
        build_state: Callable[[Model], BuildState] = lambda _: BuildState("unknown"),
    ) -> None:
        self.server = server
        self._preflight = preflight
        self._build_state = build_state
        self.client = client
        self._options = options
        self._failed: set[str] = set()
        self._missing = MissingBackends()
        self._log_start = 0
        self._dead_before: frozenset[int] = frozenset()
        self._stuck: set[str] = set()
        self._chosen: dict[str, Chosen] = {}
        self._fit: list[str] = []
        self._away: list[str] = []  # models that are fit to serve and not loaded in this server

    @property
    def stuck(self) -> int:
        """For how many models the server waits, whose stubs are dead or blocked; it must be killed then."""
        return len(self._stuck)

    @property
    def is_alone(self) -> bool:
        return len(self._away) == len(self._fit)

    def go_on_in(self, server: Server, client: Client) -> None:
        self.server, self.client, self._stuck, self._away = server, client, set(), list(self._fit)

    def withdraw(self, verdict: ModelVerdict) -> ModelVerdict:
        """The verdict on a model that was fit to serve until the server ended; any other verdict stays."""
        if verdict.name not in self._fit:
            return verdict
        self._failed.add(verdict.name)
        self._fit.remove(verdict.name)
        died = server_died("after its requests", self.server.log())
        return replace(verdict, ok=False, failure=died)

    def check_answers(self, names: Sequence[str], loaded: Check) -> Check:
        """The check of a second load, which fails if a model does not answer as after its first load."""
        chosen = [(name, self._chosen[name]) for name in names if name in self._chosen and loaded.ok]
        found = [compared.check_second_load(loaded.id, self.client, *each) for each in chosen]
        return min(filter(None, found), key=lambda check: check.ok, default=loaded)

    def _bring_what_it_may_call(self, model: Model) -> None:
        """Load the models that are fit to serve for one whose code may send requests to any of them."""
        while self._away and (sends_requests(model.folder) or model.steps):
            with contextlib.suppress(RequestError):  # who needs it fails, and says why
                self.client.load(self._away.pop(0), timeout=self._options.timeout)

    @check(
        "requirements",
        of="model",
        condition="Its requirements are those that its environment was built from; otherwise a warning. A model with"
        " requirements and without an execution environment is not loaded, see"
        " [not-built](../reference/errors.md#not-built)",
    )
    def judge(self, model: Model) -> ModelVerdict:
        """Load a model, send requests to it, and return the verdict; a faulty model never raises an exception."""
        self._log_start = self.server.log_size()
        state = self._build_state(model)
        verdict = self._judge(model, state)
        if state.status == "changed":
            outdated = warning("requirements", state.reason, state.fix)
            verdict = replace(verdict, checks=(outdated, *verdict.checks))
        if verdict.is_verified and verdict.ok:
            self._fit.append(model.name)
            self._failed.discard(model.name)  # it may be the second attempt
        if not verdict.ok:
            self._failed.add(model.name)
            # With a dead stub the server does not stop before its exit timeout, and leaves files behind.
            if verdict.failure is not None and verdict.failure.kind in _STUCK_KINDS:
                self._stuck.add(model.name)
        return replace(verdict, log=last_lines(self._log(), _LOG_LINES), environment=measure_environment(model))

    @check(
        "preflight",
        of="model",
        step="files",
        condition="Stub, environment, release and system are compatible, by their files",
    )
    def reject(self, name: str, error: EnvpackError) -> ModelVerdict:
        """The verdict on a model whose files cannot be read; what runs it is not fit to serve either."""
        self._failed.add(name)
        reason = f"{error.where}: {error.message}" if error.where else error.message
        return _rejected(name, Failure(error.kind, reason, (), error.hint))

    @check(
        "load",
        of="model",
        step="load",
        condition="The server has its backend, and it is `READY` within `--timeout`; a process that has died is noticed"
        " within seconds, although servers up to Triton 24.10 wait for ever",
    )
    def _judge(self, model: Model, state: BuildState) -> ModelVerdict:
        if known := self._verdict_before_load(model, state):
            return known
        self._bring_what_it_may_call(model)
        self._dead_before = frozenset(dead_stubs(self.server))
        timeout = self._options.timeout
        loaded = load_model(self.server, self.client, model, timeout=timeout, ignore_dead=self._dead_before)
        if loaded.stuck:
            self._stuck.add(model.name)
        if not loaded.failure:
            return self._check_loaded(model, loaded)
        if unverified := self._missing.verdict_on_load(model, loaded.failure.reason):
            missing = find_missing_file(model)  # then no server loads it, whatever backends it has
            return _rejected(model.name, missing) if missing else unverified
        failure = explain_hidden(self.server, model, loaded.failure)
        checks = (failed("load", failure.reason, failure.fix), *_check_files(model))
        return ModelVerdict(name=model.name, ok=False, load_seconds=loaded.seconds, failure=failure, checks=checks)

    def _verdict_before_load(self, model: Model, state: BuildState) -> ModelVerdict | None:
        broken = [step for step in model.steps if step in self._failed]
        if broken:
            reason = f"its member {broken[0]} is not fit to serve"
            failure = Failure("step-failed", reason, (), f"correct {broken[0]} first")
            return ModelVerdict(name=model.name, ok=False, load_seconds=0.0, failure=failure)
        if odd := UNADDRESSABLE.search(model.name):
            reason = f"its name contains {odd.group()!r}, and requests by HTTP cannot name it"
            return _rejected(model.name, Failure("bad-path", reason, (), f"rename the folder: {_LETTERS}"))
        if state.status == "unbuilt":
            return _rejected(model.name, Failure("not-built", state.reason, (), state.fix))
        environment = model.environment if model.has_stub else None
        if environment is not None and environment.is_dir():
            linked = linked_path_fault(environment, self.server.server_path(environment))
            if linked:  # the server would wait forever
                return _rejected(model.name, Failure(linked.kind, linked.message, (), linked.hint))
        # Not loaded: a stub of another ABI can crash the server.
        if mismatch := next(iter(self._preflight(model)), None):
            return _rejected(model.name, Failure(mismatch.kind, mismatch.what, (), mismatch.fix))
        return self._missing.verdict_on_steps(model)

    def _check_loaded(self, model: Model, loaded: LoadResult) -> ModelVerdict:
        verdict = ModelVerdict(name=model.name, ok=True, load_seconds=loaded.seconds)
        checks = [passed("load", f"READY after {loaded.seconds:.1f} s")]
        if model.has_stub:
            running = process.examine(self.server, model, self._log, self._options.release, self._options.preload)
            checks += process.process_checks(running)
            phases = read_phases(self.server.log(), self._log())
            verdict = replace(verdict, stub=running.stub if running else None, phases=phases)
        result = Inference(
            self.server, self.client, model, timed=self._options.requests, dead=self._dead_before, log=self._log
        ).check_all_versions()
        if result.chosen:
            self._chosen[model.name] = result.chosen
        error = result.error
        if unverified := self._missing.check_of_answer(model, error) or self._check_of_caller(model, error):
            result = InferenceResult((unverified,))
        elif result.ok and not error and (without := self._missing.check_of_call(model)):
            result = replace(result, checks=(*result.checks, without))
        checks += [*result.checks, *_check_files(model)]
        verdict = replace(verdict, samples=result.samples, latency=result.latency, checks=tuple(checks))
        if result.failure:
            return replace(verdict, ok=False, failure=result.failure)
        bad = next((check for check in verdict.checks if not check.ok), None)
        if bad is None:
            return verdict
        return replace(verdict, ok=False, failure=Failure(CHECKS[bad.id].kind, bad.evidence, (), bad.fix))

    def _check_of_caller(self, model: Model, error: str) -> Check | None:
        """The check in place of requests that a model answers with an error, if it calls one that is away or unfit."""
        named = called_models(model.folder) if error and sends_requests(model.folder) else ()
        called = next((name for name in named if name in self._failed), "")
        if called:
            why = f"it calls {called}, which is not fit to serve; its answer: {error.splitlines()[0]}"
            return unchecked("infer", why, f"correct {called} first")
        unready = _UNREADY.search(error)
        if unready is None or unready["name"] in {model.name, *self._fit}:
            return None
        beside = find_folder(model.folder.parent, unready["name"])
        if beside is None or not looks_like_model(beside):
            return None
        why, fix = "is not verified with it", f"verify both: envpack verify {model.name} {beside.name}"
        if beside.name in called_models(model.folder):  # a circle: else it would have been verified before
            why, fix = "needs it and is verified later", f"send it requests with both loaded: envpack run {model.name}"
        return unchecked("infer", f"it calls {beside.name}, which {why}; its answer: {error.splitlines()[0]}", fix)

    def _log(self) -> str:
        """The log since the verification of this model began."""
        return self.server.log(self._log_start)


@check("files", of="model", kind="environment-changed")
def _check_files(model: Model) -> tuple[Check, ...]:
    """Only shown if it fails: the files of its environment are those that were built"""
    damage = find_damage(model)
    return (failed("files", damage.what, damage.fix),) if damage else ()


def _rejected(name: str, failure: Failure) -> ModelVerdict:
    check = failed("preflight", failure.reason, failure.fix)
    return ModelVerdict(name=name, ok=False, load_seconds=0.0, failure=failure, checks=(check,))
