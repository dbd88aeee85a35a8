"""What verification found: plain values, and their JSON form."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

SCHEMA = 1


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        id: slug, the same in every run: ``preflight``, ``load``, ``stub``, ``numpy``, ``isolation``, ``infer``,
            ``formats`` or ``expected``.
        ok: whether it was as it should be.
        evidence: what was seen, one sentence.
        fix: what to do about it; empty if it is all right.

    """

    id: str
    ok: bool
    evidence: str
    fix: str = ""


@dataclass(frozen=True)
class Failure:
    """Why a model is not fit to serve.

    Attributes:
        kind: slug of the entry in ``docs/troubleshooting.md``.
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

    """

    name: str
    ok: bool
    load_seconds: float
    stub: StubIdentity | None = None
    failure: Failure | None = None
    samples: SampleCount | None = None
    checks: tuple[Check, ...] = ()

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
        ok: every model is, and nothing was left behind after a clean stop.
        release: name of the Triton release, ``""`` if unknown.
        server: version that the server reported.
        runtime: what ran it, for example ``"process"``.
        models: one verdict each, in the order of loading.
        leftovers: what the server had left behind although it stopped cleanly.
        seconds: from the start of the server to the end of its stop.
        verdict_seconds: from the start of the server until every model was judged.

    """

    ok: bool
    release: str
    server: str
    runtime: str
    models: tuple[ModelVerdict, ...]
    leftovers: tuple[str, ...]
    seconds: float
    verdict_seconds: float

    def to_json(self) -> dict[str, object]:
        """A document for ``json.dumps``; its ``schema`` changes when a key changes its meaning or goes."""
        document = dataclasses.asdict(self)
        for model, entry in zip(self.models, document["models"], strict=True):
            entry["python"], entry["numpy"] = model.python, model.numpy
        return {"schema": SCHEMA, **document}
