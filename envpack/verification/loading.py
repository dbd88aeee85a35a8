"""Loads a model, detects loads that never end, and backends that this server does not have."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial

from envpack.repository.code import called_models, reads_parameter, sends_requests
from envpack.repository.model import Model
from envpack.server.interface import Server
from envpack.server.kserve import Client, RequestError
from envpack.server.log import (
    FILES_LIMIT,
    LIMIT,
    UNHEALTHY,
    configuration_error,
    files_limit,
    is_poll_failure,
    last_lines,
    last_started_stub,
    plain_lines,
    read_abort_frames,
    read_model_error,
    threads_limit,
)
from envpack.support.pool import found_within, in_background
from envpack.verification.explanations import explain
from envpack.verification.fault_catalogue import NOT_REACHED, UNRESOLVED
from envpack.verification.stub_processes import (
    DeadStubTimer,
    FullTimer,
    abort_stubs,
    abort_workers,
    dead_stubs,
    describe_exit,
    instances,
    is_initialized,
)
from envpack.verification.verdict import Check, Failure, ModelVerdict, unchecked

# A line that libraries write before they try again, until the load takes too long.
_RETRIES = re.compile(
    rf"'[^\n]{{0,2000}}{UNRESOLVED.pattern}[^\n]{{0,2000}} thrown while requesting [A-Z]{{1,9}} https?://"
    rf"|[^\n]{{0,300}}Retry\([^\n]{{0,300}} after connection broken by '[^\n]{{0,2000}}{UNRESOLVED.pattern}"
)
_POLL_SECONDS = 0.05
# Up to release 24.10 the server never detects a stub that dies during auto-completion of the configuration. A stub that
# dies later makes the load fail after about two seconds.
_GRACE_COMPLETING = 0.3
_GRACE_INSTANCE = 4.0
_NOT_RUN = re.compile(r"Failed to run python backend stub\. Errno = (?P<number>\d{1,4})\b")
_FRAMES = 5
_LOG_SECONDS = 1.0


@dataclass(frozen=True)
class LoadResult:
    """Result of loading a model."""

    seconds: float  # from the request to READY, or until the load was abandoned
    failure: Failure | None = None  # why the load failed, else None
    stuck: bool = False  # the server still waits for the model, so a requested stop would hang


def request_load(client: Client, model: str, seconds: float) -> RequestError | None:
    try:
        client.load(model, timeout=seconds)
    except RequestError as error:
        return error
    return None


def load_model(
    server: Server, client: Client, model: Model, *, timeout: float, ignore_dead: frozenset[int]
) -> LoadResult:
    started = time.monotonic()
    log_start = server.log_size()
    request = in_background(partial(request_load, client, model.name, timeout + 5), f"load {model.name}")
    dead, full = DeadStubTimer(started), FullTimer()
    next_poll, ended = started, ""
    while True:
        answered = bool(wait([request], _POLL_SECONDS).done)
        error = request.result() if answered else None
        now = time.monotonic()
        seconds = now - started
        fresh = server.log(log_start)
        if server.ended() or (error and error.connection_lost):
            return LoadResult(seconds, server_died("while it loaded the model", fresh))
        if answered:
            return LoadResult(seconds, _load_failure(server, error, client, model, fresh, ended))
        if now >= next_poll:
            dead.update(frozenset(dead_stubs(server)) - ignore_dead, now)
            ended = describe_exit(server, ignore_dead) or ended  # the server reaps the stub before it responds
            full.update(server, fresh, now)
            next_poll = now + server.poll_seconds
        if not_run := _NOT_RUN.search(fresh):
            # It starts every stub with bash, and waits forever for one that it could not start.
            why = os.strerror(int(not_run["number"]))
            reason = f"the server cannot run bash, with which it starts every stub: {why}"
            fix = "use an image, or a PATH of the server, that has bash"
            return LoadResult(seconds, Failure("stub-died", reason, plain_lines(fresh), fix), stuck=True)
        grace = _GRACE_COMPLETING if last_started_stub(fresh) == model.name else _GRACE_INSTANCE
        if dead.seconds > grace:
            return LoadResult(seconds, _stub_died(model, fresh), stuck=True)
        if full.seconds > _GRACE_INSTANCE:
            reason = "the server can start no further thread, and would wait forever"
            return LoadResult(seconds, Failure("load-failed", reason, plain_lines(fresh), LIMIT), stuck=True)
        if seconds > timeout:
            return LoadResult(seconds, _timed_out(server, model, fresh, timeout), stuck=True)


def _load_failure(
    server: Server, error: RequestError | None, client: Client, model: Model, log: str, ended: str
) -> Failure | None:
    if error is not None:
        if is_poll_failure(error.message):
            return _misconfigured(error.message, log)
        model_error = read_model_error(error.message, server.server_path(model.folder))
        unhealthy = UNHEALTHY.search(model_error.text)
        ended = ended if unhealthy else ""
        output = plain_lines(log) if unhealthy else ()
        kind, fix = explain(append_exit(model_error.text, ended), "load-failed", output=output)
        details = model_error.frames or plain_lines(log)
        fix = locate(_named(fix, model) or _parameter_fix(model, model_error.text), model_error.frames)
        fix = fix or suggest_fix(model_error.frames)
        fix = fix or f"look for a fault in its files: `envpack inspect {model.name}`; the server's log says more"
        return Failure(kind, append_exit(model_error.reason, ended), details, fix)
    try:
        entries = [entry for entry in client.index() if entry.name == model.name]
    except RequestError as unlisted:
        if not unlisted.status:
            return server_died("while it loaded the model", log)
        reason = f"the server cannot list its models any more: {unlisted.message}"
        return Failure("too-many-files", reason, (), FILES_LIMIT)
    if any(entry.state == "READY" for entry in entries):
        return None
    state = entries[0].state if entries else "not in the repository index"
    return Failure("load-failed", f"the server reports it as loaded, but its state is {state or 'unknown'}")


def append_exit(reason: str, ended: str) -> str:
    return f"{reason.rstrip('.')}: {ended}" if ended else reason


def _misconfigured(message: str, log: str) -> Failure:
    reason = configuration_error(log) or message
    kind, fix = explain(reason, "bad-config")
    if " for repo agent '" in reason:  # the server of the wheel has none
        fix = "verify with a server that has this agent: --image IMAGE, or --server FOLDER; or correct its name"
    return Failure(kind, reason, plain_lines(log), fix or "correct config.pbtxt")


def _named(fix: str, model: Model) -> str:
    return fix.replace("envpack build MODEL", f"envpack build {model.name}")


def locate(fix: str, frames: tuple[str, ...]) -> str:
    """A fix with the line of the model's code in front that it is about, if there is one."""
    return f"{_place(frames)}: {fix}" if fix and frames else fix


_KEY = re.compile(r"KeyError: '(?P<key>[\w.-]{1,200})'\n\nAt:\n")


def _parameter_fix(model: Model, message: str) -> str:
    """How to fix an exception for a parameter that a configuration does not have; ``""`` for any other."""
    found = _KEY.match(message)
    if not found or found["key"] in model.config.parameters or not reads_parameter(model.folder, found["key"]):
        return ""
    return f"config.pbtxt has no parameter {found['key']}: add it, or correct the code"


def suggest_fix(frames: tuple[str, ...]) -> str:
    return f"correct the model's code at {_place(frames)}" if frames else ""


def _place(frames: tuple[str, ...]) -> str:
    return frames[-1].rpartition(" in ")[0]


_NO_TMP = "Failed to create temporary directory for Python environments"
_WRITABLE_TMP = "the server cannot write to /tmp, in which it unpacks environments: make it writable, with mode 1777"


def server_died(when: str, log: str) -> Failure:
    fix = files_limit(log) or threads_limit(log) or (_WRITABLE_TMP if _NO_TMP in log else "")
    return Failure("server-died", f"the server ended {when}", last_lines(log), fix)


def _stub_died(model: Model, log: str) -> Failure:
    lines = plain_lines(log)
    kind, fix = explain("", "stub-died", output=lines)
    reason = "the model's process ended during the load, and the server would wait forever"
    fix = _named(fix, model) or "find what ends the process: os._exit, or a crash in an import"
    return Failure(kind, reason, lines, fix)


def _timed_out(server: Server, model: Model, log: str, timeout: float) -> Failure:
    is_full = server.at_process_limit()
    if last_started_stub(log) and not instances(server, model.name) and not is_full:
        reason = f"not loaded after {timeout:g} s: its process has ended, and the server waits forever"
        fix = (
            f"up to Triton 24.04, a failed load ends only while no other model is loaded: `envpack verify {model.name}`"
        )
        return Failure("load-timeout", reason, plain_lines(log), fix)
    frames = abort_and_read_frames(server, model)
    where = frames[0] if frames else "the model's imports or initialize"
    lines = plain_lines(log)
    fix = f"find what blocks in {where}, or allow more time: --timeout"
    if any(map(_RETRIES.match, lines)):
        fix = NOT_REACHED
    reason = f"not loaded after {timeout:g} s"
    if is_initialized(log) and not frames:
        reason, fix = f"{reason}, although initialize has ended: the server does not go on", LIMIT
    if is_full:
        fix = LIMIT
    return Failure("load-timeout", reason, (*lines, *frames), fix)


def abort_and_read_frames(server: Server, model: Model, spared: Collection[int] = ()) -> tuple[str, ...]:
    """Abort a blocked model's stubs but the ``spared`` ones, and return their Python frames, innermost first."""
    start = server.log_size()
    abort_workers(server, model.name, spared)
    frames = _abort_frames(server, model, start)  # before the stubs end, which pass them on
    abort_stubs(server, model.name, spared)
    return (frames or _abort_frames(server, model, start))[:_FRAMES]


def _abort_frames(server: Server, model: Model, start: int) -> tuple[str, ...]:
    """The frames in the log from a position on, now or soon: a container's log arrives with a delay."""
    place = server.server_path(model.folder)
    return found_within(_LOG_SECONDS, lambda: read_abort_frames(server.log(start), place))


# The releases have four forms: a library, a library or a model.py, a model.py, and the backend's name.
_MISSING = re.compile(r"unable to find (?:backend library for backend '|'[^']*' (?:or '[^']*' )?for model ')")
_FIX = "verify with a server that has this backend: --image IMAGE, or --server FOLDER"


class MissingBackends:
    """Collects the backends that a server does not have, and what cannot be verified without them."""

    def __init__(self) -> None:
        self._unloaded: dict[str, str] = {}  # the backend that each unverified model needs
        self._callers: dict[str, str] = {}  # the unverified model that each loaded model may send requests to

    def verdict_on_load(self, model: Model, error: str) -> ModelVerdict | None:
        """The verdict on a model that the server refused to load, if the reason is that it lacks the backend."""
        if not model.is_foreign or not _MISSING.search(error):
            return None
        return self._unverified(model, model.backend, f'this server has no backend "{model.backend}"')

    def verdict_on_steps(self, model: Model) -> ModelVerdict | None:
        """The verdict on an ensemble that cannot be loaded, because a step of it is not verified."""
        step = next((step for step in model.steps if step in self._unloaded), None)
        if step is None:
            return None
        backend = self._unloaded[step]
        return self._unverified(
            model, backend, f'its step {step} needs the backend "{backend}", which this server does not have'
        )

    def check_of_answer(self, model: Model, error: str) -> Check | None:
        """The check in place of requests that a model answers with an error, if it may need an unverified one."""
        called = self._called_by(model, error) if error else ""
        if not called:
            return None
        self._callers[model.name] = called
        why = f'it runs or calls {called}, and this server has no backend "{self._unloaded[called]}"'
        return unchecked("infer", f"not verified: {why}; its answer: {error.splitlines()[0]}", _FIX)

    def check_of_call(self, model: Model) -> Check | None:
        """The check beside the requests that a model answers without an unverified one, which its code names."""
        called = next((name for name in called_models(model.folder) if name in self._unloaded), "")
        if not called:
            return None
        how = "it calls" if sends_requests(model.folder) else "its code names"
        why = f'{how} {called}, and this server has no backend "{self._unloaded[called]}"'
        return unchecked("infer", f"not verified: what it answers with {called}: {why}", _FIX)

    def _called_by(self, model: Model, error: str) -> str:
        """An unverified model that a loaded model may need for an answer, ``""`` if there is none."""
        called = called_models(model.folder) if sends_requests(model.folder) else ()
        for name in (*model.steps, *called):
            if name in self._unloaded or name in self._callers:
                return self._callers.get(name, name)
        named = (name for name in self._unloaded if re.search(rf"\b{re.escape(name)}\b", error))
        return next(named, "") if sends_requests(model.folder) else ""

    def _unverified(self, model: Model, backend: str, why: str) -> ModelVerdict:
        self._unloaded[model.name] = backend
        check = unchecked("load", f"not verified: {why}", _FIX)
        return ModelVerdict(name=model.name, ok=True, load_seconds=0.0, checks=(check,))
