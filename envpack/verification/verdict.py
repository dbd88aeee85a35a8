"""What verification found: plain values, and their JSON form."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

SCHEMA = 2

Status = Literal["ok", "failed", "warning", "skipped"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        id: slug, the same in every run; ``docs/explanation/verification.md`` lists them.
        status: ``"ok"``; ``"failed"``, which makes the model unfit to serve; ``"warning"``, which does not; or
            ``"skipped"``, if it could not be looked at.
        evidence: what was seen, one sentence.
        fix: what to do about it; empty if it is all right.

    """

    id: str
    status: Status
    evidence: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        """Whether it does not speak against serving the model."""
        return self.status != "failed"


def passed(check: str, evidence: str) -> Check:
    """A check that found everything as it should be."""
    return Check(check, "ok", evidence)


def failed(check: str, evidence: str, fix: str) -> Check:
    """A check that speaks against serving the model."""
    return Check(check, "failed", evidence, fix)


def warning(check: str, evidence: str, fix: str) -> Check:
    """A check that found something which may be meant so."""
    return Check(check, "warning", evidence, fix)


def skipped(check: str, reason: str) -> Check:
    """A check that could not be made; ``reason`` names what is missing."""
    return Check(check, "skipped", reason)


@dataclass(frozen=True)
class Failure:
    """Why a model is not fit to serve.

    Attributes:
        kind: slug of the entry in ``docs/reference/errors.md``.
        reason: one line, the model's own words where it has said something.
        details: frames of the model's code, or the last lines that its process wrote.
        fix: what to do; may be empty.

    """

    kind: str
    reason: str
    details: tuple[str, ...] = ()
    fix: str = ""


@dataclass(frozen=True)
class SampleCount:
    """How many of the user's samples were answered as expected: "178 images right of 180 images sent"."""

    right: int
    sent: int
    noun: str


@dataclass(frozen=True)
class StubIdentity:
    """The process that runs a model.

    Attributes:
        pid: its process id while it ran.
        executable: path of the stub.
        python: version of its Python, as exactly as could be told.
        numpy: version of the NumPy that it loaded, ``""`` if none or unknown.
        version: version of envpack's stub, ``""`` for another stub.

    """

    pid: int
    executable: str
    python: str
    numpy: str
    version: str = ""


@dataclass(frozen=True)
class Latency:
    """How long a model took to answer; reported, never judged.

    Attributes:
        requests: how many requests were timed, one after the other, the first ones not counted.
        p50: seconds that half of them took at most.
        p95: seconds that 95 of 100 took at most.

    """

    requests: int
    p50: float
    p95: float


@dataclass(frozen=True)
class Phase:
    """A part of a model's load.

    Attributes:
        name: ``"configuration"`` (the model completes it in a process of its own), ``"extraction"`` (of a packed
            environment), ``"stub start"``, ``"import"`` and ``"initialize"``, or ``"instance"`` for those three
            of a stub that does not tell them apart.
        start: seconds since the server was started.
        seconds: how long it took.

    """

    name: str
    start: float
    seconds: float


@dataclass(frozen=True)
class PackageSize:
    """Bytes that the files of a package take in an environment; those of no package have the name ``""``."""

    name: str
    bytes: int


@dataclass(frozen=True)
class EnvironmentSize:
    """How large an environment is.

    Attributes:
        path: folder or archive, as the model names it.
        form: ``"folder"`` or ``"archive"``.
        bytes: all its files, unpacked.
        packages: by package, largest first.

    """

    path: str
    form: str
    bytes: int
    packages: tuple[PackageSize, ...]


@dataclass(frozen=True)
class ModelVerdict:
    """One model.

    Attributes:
        name: the model.
        ok: whether it can be served; true if and only if ``failure`` is None.
        load_seconds: from the request to load it to READY, or until it was given up.
        stub: the process that ran it (the first instance's); None for an ensemble or if there was none.
        failure: the first thing that was wrong.
        samples: how the user's samples were answered; None without samples that say what to expect.
        checks: all that was looked at, in order.
        latency: how fast it answers, None if it was not asked.
        phases: what its load consisted of, in order, as far as the log tells.
        environment: what it runs in, None if that is not one that envpack has made.
        log: the last lines that it and the server wrote about its load.

    """

    name: str
    ok: bool
    load_seconds: float
    stub: StubIdentity | None = None
    failure: Failure | None = None
    samples: SampleCount | None = None
    checks: tuple[Check, ...] = ()
    latency: Latency | None = None
    phases: tuple[Phase, ...] = ()
    environment: EnvironmentSize | None = None
    log: tuple[str, ...] = ()

    @property
    def python(self) -> str:
        """Version of the Python that ran it, or ``""``."""
        return self.stub.python if self.stub else ""

    @property
    def numpy(self) -> str:
        """Version of the NumPy that ran with it, or ``""``."""
        return self.stub.numpy if self.stub else ""


@dataclass(frozen=True)
class Verdict:
    """The whole repository.

    Attributes:
        ok: every model is, every check of the server is, and nothing was left behind after a clean stop.
        repository: folder that was verified.
        release: name of the Triton release, ``""`` if unknown.
        server: version that the server reported.
        runtime: what ran it: ``"process"``, ``"docker"`` or ``"podman"``.
        image: the container image, ``""`` without one.
        models: one verdict each, in the order of loading.
        checks: what was looked at of the server as a whole.
        leftovers: what the server had left behind although it stopped cleanly.
        started: when the server was started, ISO 8601 with the zone.
        seconds: from the start of the server to the end of its stop.
        verdict_seconds: from the start of the server until every model was judged.
        kept: how to reach and how to stop the server that was left running on request, ``""`` otherwise.

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

    def to_json(self) -> dict[str, object]:
        """A document for ``json.dumps``, described by ``verdict.schema.json`` beside this file.

        Its ``schema`` changes when a key changes its meaning or goes.
        """
        document = dataclasses.asdict(self)
        document["checks"] = [{**dataclasses.asdict(check), "ok": check.ok} for check in self.checks]
        for model, entry in zip(self.models, document["models"], strict=True):
            entry["python"], entry["numpy"] = model.python, model.numpy
            entry["checks"] = [{**dataclasses.asdict(check), "ok": check.ok} for check in model.checks]
        return {"schema": SCHEMA, **document}
