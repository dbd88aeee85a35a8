"""The result of a verification as plain values, and its JSON form; and the register of the checks that give it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeVar

SCHEMA = 2

Status = Literal["ok", "failed", "warning", "skipped", "unchecked"]
Answer = Literal["yes", "no", "yes as far as checked"]


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    id: str  # stable slug; docs/explanation/verification.md lists all checks
    # "ok"; "failed", which makes the model unfit to serve; "warning", which does not; or "skipped" if the check does
    # not apply here; or "unchecked" if it could not be made although the verdict needs it, which is then no plain yes
    status: Status
    evidence: str  # what was observed, in one sentence
    fix: str = ""  # how to fix it; empty if nothing is wrong

    @property
    def ok(self) -> bool:
        return self.status != "failed"


def passed(check: str, evidence: str) -> Check:
    return Check(check, "ok", evidence)


def failed(check: str, evidence: str, fix: str) -> Check:
    return Check(check, "failed", evidence, fix)


def warning(check: str, evidence: str, fix: str) -> Check:
    """A check with a result that can be intended."""
    return Check(check, "warning", evidence, fix)


def skipped(check: str, reason: str) -> Check:
    """A check that does not apply here; ``reason`` names what is missing."""
    return Check(check, "skipped", reason)


def unchecked(check: str, reason: str, fix: str) -> Check:
    """A check that the verdict needs and that could not be made; ``fix`` says what makes it possible."""
    return Check(check, "unchecked", reason, fix)


@dataclass(frozen=True)
class Failure:
    """Why a model is not fit to serve."""

    kind: str  # slug of the section in docs/reference/errors.md
    reason: str  # one line; the model's own error message if it raised one
    details: tuple[str, ...] = ()  # frames of the model's code, or the last lines of its process's output
    fix: str = ""  # how to fix it; may be empty


@dataclass(frozen=True)
class SampleCount:
    """Number of the user's samples with the expected outputs: "178 images right of 180 images sent"."""

    right: int  # samples with the expected outputs
    sent: int  # all samples
    noun: str  # plural noun for them
    needed: int  # how many must be right; fewer than all if the file of samples says so (`minimum_match`)
    expected: int  # samples that have expected outputs; the others only need an answer

    @property
    def ok(self) -> bool:
        """Whether enough are right."""
        return self.right >= self.needed

    def __str__(self) -> str:
        needed = f", {self.needed} needed" if self.right < self.expected else ""
        others = f", {self.sent - self.expected} without expected outputs" if self.sent > self.expected else ""
        return f"{self.right} of {self.expected} {self.noun} right{needed}{others}"


@dataclass(frozen=True)
class StubIdentity:
    """The process that runs a model."""

    pid: int
    executable: str  # path of the stub on the server's file system
    python: str  # version of its Python; the minor version only for stubs other than envpack's
    numpy: str  # version of the NumPy that it loaded, "" if none or unknown
    version: str = ""  # version of envpack's stub, "" for another stub
    _: KW_ONLY
    start: str = ""  # how its first instance started: "warm" or "cold", "" if unknown, as with another stub


@dataclass(frozen=True)
class Latency:
    """Response times of a model; reported, not judged."""

    requests: int  # number of timed requests, sent one after the other after the requests of other checks
    p50: float  # median in seconds
    p95: float  # 95th percentile in seconds


@dataclass(frozen=True)
class Phase:
    """A phase of a model's load."""

    # "configuration" (auto-completion in a process of its own, with the import of a warm start), "extraction" (of a
    # packed environment), "stub start", "import", "initialize", or "instance" for these three together if the stub does
    # not report them separately
    name: str
    start: float  # seconds since the start of the server
    seconds: float


@dataclass(frozen=True)
class PackageSize:
    """Size in bytes of a package's files; the name ``""`` stands for files that belong to no package."""

    name: str
    bytes: int


@dataclass(frozen=True)
class EnvironmentSize:
    """Size of an execution environment."""

    path: str  # folder or archive, as named in the model's configuration
    form: str  # "folder" or "archive"
    bytes: int  # unpacked size of all files
    packages: tuple[PackageSize, ...]  # sizes by package, largest first


@dataclass(frozen=True, kw_only=True)
class ModelVerdict:
    """Verdict on one model."""

    name: str
    ok: bool  # whether the model is fit to serve, as far as it was checked; true if and only if failure is None
    load_seconds: float  # from the load request to READY, or until the load was abandoned
    stub: StubIdentity | None = None  # of the first instance; None for an ensemble and without a process
    failure: Failure | None = None
    samples: SampleCount | None = None  # result of the user's samples; None without samples that have expected outputs
    checks: tuple[Check, ...] = ()  # all checks, in order
    latency: Latency | None = None  # response times, None if not measured
    phases: tuple[Phase, ...] = ()  # phases of the load, in order; empty if the log does not contain them
    environment: EnvironmentSize | None = None  # size of the model's environment, None if unknown
    log: tuple[str, ...] = ()  # last lines of the log since the load began

    @property
    def complete(self) -> bool:
        """Whether every check that the verdict needs could be made."""
        return all(check.status != "unchecked" for check in self.checks)

    @property
    def is_verified(self) -> bool:
        """Whether anything was checked: not if the server does not have the model's backend."""
        return all(check.id != "load" or check.status != "unchecked" for check in self.checks)

    @property
    def python(self) -> str:
        """Version of the model's Python, or ``""``."""
        return self.stub.python if self.stub else ""

    @property
    def numpy(self) -> str:
        """Version of the NumPy that the model loaded, or ``""``."""
        return self.stub.numpy if self.stub else ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Verdict on a model repository.

    Attributes:
        ok: all models are fit to serve, no check of the server failed, nothing was left behind after a clean stop, and
            every check that the verdict needs could be made: the answer is "yes".
        repository: folder of the repository.
        release: name of the Triton release, ``""`` if unknown.
        server: version that the server reported.
        runtime: ``"process"``, ``"docker"`` or ``"podman"``.
        image: name of the container image, ``""`` without one.
        models: one verdict per model, in the order of loading.
        checks: checks of the server as a whole.
        leftovers: what the server left behind, and how it ended if not with exit status 0.
        started: start of the server, ISO 8601 with time zone.
        seconds: from the start of the server to the end of its stop.
        verdict_seconds: from the start of the server until every model was judged.
        kept: how to reach and how to stop a server that was left running on request, otherwise ``""``.
        log: file with the server's log, which the next verification replaces; ``""`` if it could not be written.
    """

    ok: bool
    repository: str
    release: str
    server: str
    runtime: str
    image: str
    models: tuple[ModelVerdict, ...]
    checks: tuple[Check, ...]
    leftovers: tuple[str, ...]
    started: str
    seconds: float
    verdict_seconds: float
    kept: str = ""
    log: str = ""

    @property
    def answer(self) -> Answer:
        """What the verdict says in words."""
        if self.ok:
            return "yes"
        faults = not all(model.ok for model in self.models) or not all(check.ok for check in self.checks)
        return "no" if faults or self.leftovers else "yes as far as checked"

    @property
    def count(self) -> str:
        """How many models serve, and how many could not be checked, in words."""
        fit = [model for model in self.models if model.ok]
        unverified = sum(not model.is_verified for model in fit)
        partly = sum(not model.complete for model in fit) - unverified
        return f"{len(fit) - unverified - partly} of {len(self.models)} models serve" + "".join(
            f", {number} {words}"
            for number, words in ((unverified, "not verified"), (partly, "not fully checked"))
            if number
        )

    @property
    def complete(self) -> bool:
        """Whether every check that the verdict needs could be made."""
        own = all(check.status != "unchecked" for check in self.checks)
        return own and all(model.complete for model in self.models)

    def to_json(self) -> dict[str, Any]:
        """A document for ``json.dumps`` that conforms to ``verdict.schema.json`` beside this file.

        Its ``schema`` is incremented when a key is removed or changes its meaning.
        """
        document = {**dataclasses.asdict(self), "answer": self.answer}
        document["checks"] = [{**dataclasses.asdict(check), "ok": check.ok} for check in self.checks]
        for model, entry in zip(self.models, document["models"], strict=True):
            entry["python"], entry["numpy"] = model.python, model.numpy
            entry["checks"] = [{**dataclasses.asdict(check), "ok": check.ok} for check in model.checks]
        return {"schema": SCHEMA, **document}


Of = Literal["model", "process", "answers", "server"]
Step = Literal["files", "start", "load", "process", "inference", "together", "unload"]
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A check."""

    id: str  # slug in verdicts
    of: Of  # what it examines
    step: Step  # of the verification that makes it
    kind: str  # of the failure, a section in docs/reference/errors.md; empty if the failure itself names it
    condition: str  # when it passes; its row in docs/explanation/verification.md
    meaning: str  # what a failure means; the section of its kind, unless that is in docs/reference/errors.md
    run: Callable[..., Any]


CHECKS: dict[str, Registered] = {}


def check(
    name: str, *, of: Of, step: Step | None = None, kind: str = "", condition: str = ""
) -> Callable[[_Function], _Function]:
    """Register the function that makes a check; its docstring is the condition, unless given, and the meaning."""

    def register(run: _Function) -> _Function:
        first, _, meaning = inspect.cleandoc(run.__doc__ or "").partition("\n\n")
        text = condition or first.replace("\n", " ")
        during = step or ("inference" if of == "answers" else "process")
        CHECKS[name] = Registered(
            id=name, of=of, step=during, kind=kind, condition=text, meaning=meaning if kind else "", run=run
        )
        return run

    return register
