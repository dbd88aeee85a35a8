"""Judges models one after the other in a running server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from envpack.errors import InputError
from envpack.preflight import Mismatch
from envpack.releases import Release
from envpack.repository import Model
from envpack.verification.asking.kserve import Client, RequestError
from envpack.verification.asking.samples import SAMPLES_FILE, Samples, read_samples
from envpack.verification.asking.served_config import ServedConfig, read_served_config
from envpack.verification.asking.smoke_inputs import make_smoke_inputs
from envpack.verification.checks import (
    check_formats,
    check_isolation,
    check_numpy,
    check_samples,
    check_smoke,
    check_stub,
)
from envpack.verification.fault_catalogue import explain
from envpack.verification.loading import Loaded, load
from envpack.verification.runtimes.interface import Server
from envpack.verification.server_log import last_lines, plain_lines, read_model_error
from envpack.verification.stubs import dead_stubs
from envpack.verification.verdict import Check, Failure, ModelVerdict, SampleCount

_KINDS = {
    "stub": "stub-died",
    "numpy": "numpy-unsupported",
    "isolation": "not-isolated",
    "infer": "bad-output",
    "formats": "formats-differ",
    "expected": "wrong-answers",
}
_STUCK_KINDS = frozenset({"stub-died", "inference-timeout"})


class Judge:
    """Loads and asks models, and remembers which of them keep the server from stopping.

    Args:
        server: the running server.
        client: a client of it.
        load_timeout: seconds that one model may take to load.
        release: what is known of the server's release; None if nothing is.
        preflight: says of a model what will not go together.

    """

    def __init__(
        self,
        server: Server,
        client: Client,
        load_timeout: float,
        release: Release | None = None,
        preflight: Callable[[Model], Sequence[Mismatch]] = lambda _: (),
    ) -> None:
        self._server = server
        self._preflight = preflight
        self._client = client
        self._load_timeout = load_timeout
        self._release = release
        self._failed: set[str] = set()
        self._log_start = 0
        self.stuck = False

    def judge(self, model: Model) -> ModelVerdict:
        """Load a model, ask it, and say whether it is fit to serve; never raises for a fault of the model."""
        verdict = self._judge(model)
        if not verdict.ok:
            self._failed.add(model.name)
            # With a stub dead the server does not stop by itself before its time is up, and leaves things behind.
            self.stuck = self.stuck or (verdict.failure is not None and verdict.failure.kind in _STUCK_KINDS)
        return verdict

    def _judge(self, model: Model) -> ModelVerdict:
        broken = [step for step in model.steps if step in self._failed]
        if broken:
            reason = f"it runs {broken[0]}, which is not fit to serve"
            return ModelVerdict(model.name, False, 0.0, failure=Failure("step-failed", reason))
        for mismatch in self._preflight(model):
            # Not loaded: a stub that speaks otherwise than its server can make that crash.
            check = Check("preflight", False, mismatch.reason, mismatch.fix)
            failure = Failure(mismatch.kind, mismatch.reason, (), mismatch.fix)
            return ModelVerdict(model.name, False, 0.0, failure=failure, checks=(check,))
        self._log_start = len(self._server.log())
        dead_before = frozenset(dead_stubs(self._server))
        loaded = load(self._server, self._client, model, timeout=self._load_timeout, ignore_dead=dead_before)
        self.stuck = self.stuck or loaded.stuck
        if loaded.failure:
            check = Check("load", False, loaded.failure.reason, loaded.failure.fix)
            return ModelVerdict(model.name, False, loaded.seconds, failure=loaded.failure, checks=(check,))
        return self._examined(model, loaded)

    def _examined(self, model: Model, loaded: Loaded) -> ModelVerdict:
        """The verdict on a model that is loaded."""
        verdict = ModelVerdict(model.name, True, loaded.seconds)
        checks = [Check("load", True, f"READY after {loaded.seconds:.1f} s")]
        if not model.is_ensemble:
            check, stub = check_stub(self._server, model)
            checks.append(check)
            verdict = replace(verdict, stub=stub)
            if stub:
                more = check_numpy(model, stub, self._release), check_isolation(self._server, model, stub)
                checks += [check for check in more if check]
        try:
            answers, count = self._answers(model)
            verdict = replace(verdict, samples=count, checks=(*checks, *answers))
        except (RequestError, InputError) as error:
            failure = self._inference_failure(model, error)
            check = Check("infer", False, failure.reason, failure.fix)
            verdict = replace(verdict, ok=False, failure=failure, checks=(*checks, check))
        bad = next((check for check in verdict.checks if not check.ok), None)
        if bad is None or verdict.failure:
            return verdict
        return replace(verdict, ok=False, failure=Failure(_KINDS[bad.id], bad.evidence, (), bad.fix))

    def _answers(self, model: Model) -> tuple[list[Check], SampleCount | None]:
        """What the model answers to the user's samples, or to inputs made up."""
        config = read_served_config(self._client.config(model.name))
        if config.decoupled:
            return [Check("infer", True, "not asked: a decoupled model has no plain inference over HTTP")], None
        samples = self._samples(model, config)
        inputs = samples.samples[0].inputs if samples else make_smoke_inputs(config)
        if not inputs:
            return [Check("infer", True, "not asked: neither config.pbtxt nor the model names an input")], None
        smoke = check_smoke(self._client, model.name, config, inputs)
        formats = check_formats(self._client, model.name, config, inputs) if smoke.ok else None
        checks = [smoke, *([formats] if formats else [])]
        if samples is None:
            return checks, None
        expected, count = check_samples(self._client, model.name, samples)
        return [*checks, expected], count

    def _samples(self, model: Model, config: ServedConfig) -> Samples | None:
        file = model.folder / SAMPLES_FILE
        return read_samples(file, config) if file.is_file() else None

    def _inference_failure(self, model: Model, error: RequestError | InputError) -> Failure:
        if isinstance(error, InputError):
            return Failure(error.kind, f"{error.where}: {error.message}", (), error.hint)
        log = self._server.log()[self._log_start :]
        if error.status == 0 and not error.timed_out:
            return Failure("server-died", "the server ended while it was asked", last_lines(log))
        told = read_model_error(error.message, str(model.folder))
        kind, fix = explain(error.message, "inference-timeout" if error.timed_out else "inference-failed")
        details = told.frames or plain_lines(log)
        return Failure(kind, told.reason, details, fix)
