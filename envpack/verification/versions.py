"""Sends requests to every version of a loaded model that the server serves, and has the responses checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from envpack.repository.code import reads_requested_outputs, returns_nothing, sends_requests
from envpack.repository.model import Model
from envpack.server.interface import Server
from envpack.server.kserve import Client, RequestError
from envpack.server.log import UNHEALTHY, plain_lines, read_model_error
from envpack.server.tensors import read_served_config
from envpack.support.errors import InputError
from envpack.verification.answers import LoadedModel, Responses
from envpack.verification.checks import compared, concurrency, inference, process
from envpack.verification.choice import Chosen, NoRequest, choose_requests, record_sample
from envpack.verification.explanations import explain_answer
from envpack.verification.hidden_files import explain_hidden
from envpack.verification.loading import abort_and_read_frames, append_exit, locate, server_died, suggest_fix
from envpack.verification.samples import SAMPLES_FILE
from envpack.verification.stub_processes import describe_exit, stub_processes
from envpack.verification.verdict import Check, Failure, Latency, SampleCount, failed

_SEND_FINAL = "send the last response, or nothing, with flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
_RETURN = "return a list with one InferenceResponse per request from execute"
_CIRCLE = " (a request to itself, or to a model that waits for it, is never answered)"


@dataclass(frozen=True)
class InferenceResult:
    """Result of the requests to a model; ``chosen`` are the requests, None if there were none."""

    checks: tuple[Check, ...]
    samples: SampleCount | None = None
    latency: Latency | None = None
    failure: Failure | None = None
    chosen: Chosen | None = None
    refusal: str = ""  # the error with which the model answers every generated request

    @property
    def error(self) -> str:
        """The error with which the model answers requests that the server accepts; ``""`` for another result."""
        if self.failure and self.failure.kind == "inference-failed":
            return self.failure.reason
        return self.refusal

    @property
    def ok(self) -> bool:
        return self.failure is None and all(check.ok for check in self.checks)


class Inference:
    """The requests to a loaded model."""

    def __init__(
        self, server: Server, client: Client, model: Model, *, timed: int, dead: frozenset[int], log: Callable[[], str]
    ) -> None:
        """``timed`` requests at most are timed; stubs were ``dead`` before, and ``log`` is that of this model."""
        self._server, self._client, self._model = server, client, model
        self._timed, self._dead, self._log = timed, dead, log

    def check_all_versions(self) -> InferenceResult:
        """Check the responses of every version that the server serves, the newest first; stops at the first failure."""
        result = self._infer(self._client)
        for version in self._older_versions() if result.chosen else ():
            if not result.ok:
                break
            others = self._infer(self._client.of_version(version), f"version {version}: ", result.chosen)
            result = replace(result, checks=(*result.checks, *others.checks), failure=others.failure)
        return result

    def _older_versions(self) -> list[str]:
        """The served versions of a model without the newest; none if the server has ended, which the result says."""
        try:
            entries = self._client.index()
        except RequestError:
            return []
        served = (entry.version for entry in entries if entry.name == self._model.name and entry.state == "READY")
        return sorted(served, key=lambda version: int(version or 0), reverse=True)[1:]

    def _infer(self, client: Client, of: str = "", chosen: Chosen | None = None) -> InferenceResult:
        try:
            result = self._request(client, chosen)
        except (RequestError, InputError) as error:
            failure = self._failure(error)
            result = InferenceResult((failed("infer", failure.reason, failure.fix),), failure=failure)
        if not of:
            return result
        checks = tuple(replace(check, evidence=f"{of}{check.evidence}") for check in result.checks)
        failure_of = result.failure and replace(result.failure, reason=f"{of}{result.failure.reason}")
        return replace(result, checks=checks, failure=failure_of)

    def _request(self, client: Client, before: Chosen | None) -> InferenceResult:
        model, server = self._model, self._server
        config = read_served_config(client.config(model.name))
        memory = {p.pid: server.memory_bytes(p.pid) for p in stub_processes(server, model.name)}
        chosen = before or choose_requests(server, client, model, config)
        if isinstance(chosen, NoRequest):
            return InferenceResult((chosen.check,), refusal=chosen.refusal)
        loaded = LoadedModel(client, model.name, config)
        requests, samples = chosen.requests, None if before else chosen.samples
        has_expected = bool(chosen.samples and chosen.samples.have_answers)
        checks, answer = inference.check_smoke(loaded, requests, has_expected=has_expected)
        if not checks[0].ok:
            return InferenceResult(tuple(checks))
        checks += filter(None, _comparisons(loaded, chosen, answer, again=before is not None))
        requested: tuple[str, ...] = ()  # outputs that some clients request alone
        if len(config.outputs) > 1 and not (before or config.decoupled) and reads_requested_outputs(model.folder):
            lacks = compared.check_outputs(loaded, requests[0])
            checks += [lacks] if lacks else []
            requested = () if lacks else tuple(entry.name for entry in config.outputs)
        count = None
        if samples is not None:
            expected, count = inference.check_samples(loaded, samples)
            checks.append(expected)
        if concurrency.is_asked_together(config) and all(check.ok for check in checks):
            together = concurrency.check_together(loaded, samples, chosen.filling, requested)
            checks += [together] if together else []
        warm = process.usage_of(server, model.name)
        latency, last = inference.measure_latency(loaded, requests[0], self._timed) or (None, answer)
        later = compared.check_later(loaded, requests[0], answer, last, samples)
        checks += [later] if later else []
        if model.has_stub:
            checks += process.checks_of_use(server, model, memory, warm, latency.requests if latency else 0)
        if not before:
            chosen = replace(chosen, answer=answer)
        return InferenceResult(tuple(checks), count, latency, chosen=chosen)

    def _failure(self, error: RequestError | InputError) -> Failure:
        model, server = self._model, self._server
        if isinstance(error, InputError):
            return Failure(error.kind, f"{error.where}: {error.message}", (), error.hint)
        log = self._log()
        if server.ended() or error.connection_lost:
            return server_died("during a request", log)
        model_error = read_model_error(error.message, server.server_path(model.folder))
        ended = describe_exit(server, self._dead) if UNHEALTHY.search(error.message) else ""
        message = append_exit(model_error.text, ended)
        kind, fix = explain_answer(message, "inference-timeout" if error.timed_out else "inference-failed")
        blocked = abort_and_read_frames(server, model) if error.timed_out else ()
        details = model_error.frames or (*plain_lines(log), *blocked)
        fix = locate(fix, model_error.frames) or _suggest_fix(model, blocked or model_error.frames, error)
        sent = f"sent {error.sent}: " if error.sent else ""
        if error.items > 1 and kind == "inference-failed":
            fix += ", or set max_batch_size to the number of items that it takes"
        if kind == "stub-died" and not (model.folder / SAMPLES_FILE).is_file():
            fix += f"; if no client sends such a request as was generated here, {record_sample(model)}"
        failure = Failure(kind, f"{sent}{append_exit(model_error.reason, ended)}", details, fix)
        return explain_hidden(server, model, failure)


def _comparisons(loaded: LoadedModel, chosen: Chosen, answer: Responses, *, again: bool) -> Iterator[Check | None]:
    first = chosen.requests[0]
    if chosen.other and (other := compared.answer_to_other(loaded, chosen.other)) is not None:
        if not again and not (chosen.samples and chosen.samples.have_answers):
            yield compared.check_constant(loaded, chosen.other, (answer, other))
        yield compared.check_items(loaded, (first, chosen.other), (answer, other))
    if chosen.longer and not again:
        yield compared.check_lengths(loaded, chosen.longer)
    if chosen.partial and not again:
        yield compared.check_optional(loaded, chosen.partial)
    if chosen.foreign and not again:
        yield compared.check_text(loaded, chosen.foreign)
    if not loaded.config.decoupled:
        yield compared.check_formats(loaded, first)


def _suggest_fix(model: Model, frames: tuple[str, ...], error: RequestError) -> str:
    if error.streamed is not None and (error.streamed or not frames):
        running = f"; {frames[0]} was running" if frames else ""
        return f"{_SEND_FINAL}, or allow more time: --timeout{running}"
    if error.timed_out and not frames and returns_nothing(model.folder):  # the release's own stub does not say so
        return f"{_RETURN}, which returns nothing"
    if error.timed_out:
        where = frames[0] if frames else f"execute, or {_RETURN}: None is no response"
        circle = _CIRCLE if sends_requests(model.folder) else ""
        return f"find what blocks in {where}{circle}, or allow more time: --timeout"
    # Without frames it is a response with an error, or the server has refused the request.
    own = suggest_fix(frames) or ("" if model.is_ensemble else "find in execute what answers with this error")
    has_samples = (model.folder / SAMPLES_FILE).is_file()
    samples = "compare the samples with the inputs in config.pbtxt" if has_samples and not frames else ""
    return "; ".join(filter(None, (own, samples)))
