"""What a loaded model must show: the right process behind it, and right answers."""

from __future__ import annotations

import re

from envpack.releases import Release
from envpack.repository import STUB_NAME, Model, environment_of
from envpack.verification.asking.kserve import Client, RequestError, needs_binary
from envpack.verification.asking.samples import Samples
from envpack.verification.asking.served_config import ServedConfig
from envpack.verification.asking.tensors import BINARY_ONLY, Tensor, Tolerance, difference
from envpack.verification.runtimes.interface import Server
from envpack.verification.stubs import foreign_files, identify, stub_processes
from envpack.verification.verdict import Check, SampleCount, StubIdentity

_EXTRACTED = re.compile(r"^/tmp/python_env_\w{6}/\d+")
_JSON_TOLERANCE = Tolerance(rtol=1e-6, atol=1e-9)
_SHOWN_FAILURES = 3


def check_stub(server: Server, model: Model) -> tuple[Check, StubIdentity | None]:
    """Whether a living process runs the model, and which."""
    processes = stub_processes(server, model.name)
    if not processes:
        return Check("stub", False, "no living process runs the model", "look at the server's log"), None
    stub = identify(server, processes[0])
    placed = model.folder / STUB_NAME
    if placed.exists() and stub.executable and stub.executable != server.place_of(placed):
        evidence = f"process {stub.pid} runs {stub.executable} although the model has its own stub"
        return Check("stub", False, evidence, "put Triton's utilities beside the stub of the backend's folder"), stub
    parts = [f"Python {stub.python}" if stub.python else "unknown Python"]
    parts += [f"NumPy {stub.numpy}"] if stub.numpy else []
    parts += [f"envpack's stub {stub.version}"] if stub.version else []
    return Check("stub", True, f"process {stub.pid}: {', '.join(parts)}, {stub.executable}"), stub


def check_numpy(model: Model, stub: StubIdentity, release: Release | None) -> Check | None:
    """Whether the stub can do the environment's NumPy; None if there is nothing to doubt.

    The stubs of releases up to 24.10 answer with empty tensors under NumPy 2, without any error.
    """
    is_numpy2 = stub.numpy.partition(".")[0].isdigit() and int(stub.numpy.partition(".")[0]) >= 2
    if stub.version or release is None or release.numpy2 or not is_numpy2:
        return None
    return Check(
        "numpy",
        False,
        f"the stub of Triton {release.name} itself runs NumPy {stub.numpy}; under NumPy 2 its answers are empty",
        f"give the model envpack's stub: envpack build {model.name} --stub always",
    )


def check_isolation(server: Server, model: Model, stub: StubIdentity) -> Check | None:
    """Whether Python and its packages are the environment's; None if the model names no environment."""
    place = environment_of(model)
    mapped = server.mapped_files(stub.pid)
    if not place or not mapped:
        return None
    root = server.place_of(place)
    if not place.is_dir():
        root = next((match[0] for match in map(_EXTRACTED.match, mapped) if match), root)
    foreign = foreign_files(mapped, root)
    if foreign:
        return Check(
            "isolation",
            False,
            f"{len(foreign)} files loaded from outside of the environment, first {foreign[0]}",
            "the environment lacks it, or its activate script does not keep the machine's own Python out",
        )
    return Check("isolation", True, f"Python and its packages are from {root}")


def check_smoke(client: Client, model: str, config: ServedConfig, inputs: tuple[Tensor, ...]) -> Check:
    """Whether the model answers, and with what its configuration promises."""
    answer = client.infer(model, inputs, binary=True, parameters=_sequence(config))
    wrong = _broken_promises(config, answer)
    shown = ", ".join(f"{t.name} {t.datatype}{list(t.shape)}" for t in answer)
    if wrong:
        return Check("infer", False, wrong, "let the model return what config.pbtxt says, or correct config.pbtxt")
    return Check("infer", True, f"answered {shown}")


def check_formats(client: Client, model: str, config: ServedConfig, inputs: tuple[Tensor, ...]) -> Check | None:
    """Whether JSON and binary requests get the same answer; None where JSON cannot carry the tensors."""
    types = {entry.datatype for entry in (*config.inputs, *config.outputs)}
    if types & BINARY_ONLY or any(needs_binary(tensor) for tensor in inputs):
        return None
    parameters = _sequence(config)
    one = client.infer(model, inputs, binary=True, parameters=parameters)
    if any(needs_binary(tensor) for tensor in one):
        return None
    other = client.infer(model, inputs, binary=False, parameters=parameters)
    unequal = _first_difference(one, other)
    if not unequal:
        return Check("formats", True, "JSON and binary requests are answered alike")
    if _first_difference(one, client.infer(model, inputs, binary=True, parameters=parameters)):
        return Check("formats", True, "not compared: the model does not answer the same request twice alike")
    return Check("formats", False, f"as JSON, {unequal}", "the stub mishandles tensors; use envpack's stub")


def check_samples(client: Client, model: str, samples: Samples) -> tuple[Check, SampleCount | None]:
    """Send every sample and compare the outputs for which the user has said what to expect."""
    right = 0
    wrong = []
    for index, sample in enumerate(samples.samples):
        try:
            answer = {tensor.name: tensor for tensor in client.infer(model, sample.inputs, binary=True)}
        except RequestError as error:
            wrong.append(f"{index}: {error.message.splitlines()[0]}")
            continue
        differences = [
            f"{want.name} {unequal}"
            for want in sample.expected
            if (unequal := _unmet(want, answer.get(want.name), samples))
        ]
        right += not differences
        wrong += [f"{index}: {differences[0]}"] if differences else []
    sent = len(samples.samples)
    count = SampleCount(right, sent, samples.noun) if any(s.expected for s in samples.samples) else None
    ok = right >= samples.minimum_match * sent
    sentence = f"{right} {samples.noun} right of {sent} {samples.noun} sent"
    if ok:
        return Check("expected", True, sentence), count
    shown = "; ".join(wrong[:_SHOWN_FAILURES])
    return Check("expected", False, f"{sentence} ({shown})", "correct the model, or what the samples expect"), count


def _unmet(want: Tensor, have: Tensor | None, samples: Samples) -> str:
    return difference(want, have, samples.tolerance(want.name)) if have else "is missing"


def _sequence(config: ServedConfig) -> dict[str, object]:
    """A whole sequence in one request, for models that insist on sequences."""
    return {"sequence_id": 1, "sequence_start": True, "sequence_end": True} if config.sequence else {}


def _broken_promises(config: ServedConfig, answer: tuple[Tensor, ...]) -> str:
    got = {tensor.name: tensor for tensor in answer}
    for promised in config.outputs:
        tensor = got.get(promised.name)
        if tensor is None:
            return f"the output {promised.name} is missing"
        if tensor.datatype != promised.datatype:
            return f"the output {promised.name} is {tensor.datatype}, not {promised.datatype}"
        fits = len(tensor.shape) == len(promised.dims) and all(
            want in (-1, have) for want, have in zip(promised.dims, tensor.shape, strict=True)
        )
        if not fits:
            return f"the output {promised.name} has the shape {list(tensor.shape)}, not {list(promised.dims)}"
        if tensor.size == 0 or len(tensor.data) != tensor.size:
            return f"the output {promised.name} is empty: {len(tensor.data)} elements, shape {list(tensor.shape)}"
    return "" if answer else "there are no outputs"


def _first_difference(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> str:
    others = {tensor.name: tensor for tensor in other}
    for tensor in one:
        twin = others.get(tensor.name)
        unequal = difference(tensor, twin, _JSON_TOLERANCE) if twin else "is missing"
        if unequal:
            return f"{tensor.name} {unequal}"
    return ""
