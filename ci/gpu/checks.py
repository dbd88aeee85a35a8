"""The checks: inputs and outputs of execute, requests to other models, and resources."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from envpack.server import procfs
from envpack.server.tensors import Tensor
from gpu import driver
from gpu.serving import RETURNED, TYPES, TYPES_ENSEMBLE, Site, numbers_of, text_of

REFUSAL = "Tensor is stored in GPU and cannot be converted to NumPy."
LARGE = 64 * 1024 * 1024 // 4
# Six elements of each type, with its bounds; floats are exact in all their types.
_VALUES: dict[str, tuple[bool | int | float, ...]] = {"BOOL": (True, False, True, True, False, False)}
_FLOATS = (0.0, 1.5, -2.0, 0.25, 96.0, -0.5)
REQUESTS = 300
_WARM_UP = 30
_MARGIN_MEGABYTES = 64  # 300 requests that each leave a tensor behind leave more than a gigabyte
_SETTLE_SECONDS = 5


class WrongError(Exception):
    """A check observed another value than the expected one."""


class SkippedError(Exception):
    """The check needs something that is missing; the text names it."""


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: what it is about.
        models: those that must be loaded.
        run: tries it; may return a note for the line.
        devices: how many GPUs it needs.
        small_pool: whether it is tried again where its tensors are larger than the CUDA memory pool.

    """

    name: str
    models: tuple[str, ...]
    run: Callable[[Site], str | None]
    devices: int = 1
    small_pool: bool = False


CHECKS: list[Check] = []


def check(
    name: str, *models: str, devices: int = 1, small_pool: bool = False
) -> Callable[[Callable[[Site], str | None]], Callable[[Site], str | None]]:
    """Register a function as a check."""

    def add(function: Callable[[Site], str | None]) -> Callable[[Site], str | None]:
        CHECKS.append(Check(name, models, function, devices, small_pool))
        return function

    return add


def expect(what: str, got: object, wanted: object) -> None:
    """Fail unless both are equal."""
    if got != wanted:
        raise WrongError(f"{what} is {_shown(got)} instead of {_shown(wanted)}")


def expect_on_gpu(what: str, *, is_cpu: bool) -> None:
    """Fail if a tensor is in host memory."""
    if is_cpu:
        raise WrongError(f"{what} is in host memory")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:297]}..."


def _report(site: Site, case: str) -> Any:
    return _checked(site.report(case))


def _checked(report: Any) -> Any:
    """A report whose requests all succeeded.

    Raises:
        WrongError: one failed.

    """
    for part in report if isinstance(report, list) else [report]:
        if "error" in part:
            raise WrongError(str(part["error"]))
    return report


@check("model on the host", "host", devices=0)
def model_on_the_host(site: Site) -> None:
    answer = site.floats("host", [1, 2, 3])
    expect("the output", numbers_of(answer["OUT"]), [3, 6, 9])
    expect("the report", text_of(answer["REPORT"]), {"kind": "CPU", "is_cpu": True})


@check("ensemble on the host", "host_to_host", devices=0)
def ensemble_on_the_host(site: Site) -> None:
    answer = site.floats("host_to_host", [1, 2])
    expect("the output", numbers_of(answer["OUT"]), [9, 18])
    expect("whether the input is in host memory", text_of(answer["REPORT"])["is_cpu"], True)


@check("instance kind and device", "reader")
def instance_kind_and_device(site: Site) -> None:
    report = text_of(site.floats("reader", [1])["REPORT"])
    expect("model_instance_kind", report["kind"], "GPU")
    expect("model_instance_device_id", report["device"], 0)
    expect("whether the client's input is in host memory", report["is_cpu"], True)


@check("output of a GPU to the client", "producer")
def output_to_the_client(site: Site) -> None:
    expect("the output", numbers_of(site.floats("producer", [1, 2, 3])["OUT"]), [2, 4, 6])


@check("input on the GPU without a copy", "gpu_to_gpu")
def input_without_a_copy(site: Site) -> None:
    answer = site.floats("gpu_to_gpu", [1, 2, 3])
    expect("the output", numbers_of(answer["OUT"]), [3, 5, 7])
    report = text_of(answer["REPORT"])
    expect_on_gpu("the input", is_cpu=report["is_cpu"])
    expect("__dlpack_device__()", report["dlpack_device"], [2, 0])
    expect("whether the library has it on the GPU", report["library_on_gpu"], True)


@check("as_numpy() of a GPU tensor is refused", "gpu_to_gpu")
def as_numpy_is_refused(site: Site) -> None:
    expect("the error", text_of(site.floats("gpu_to_gpu", [1])["REPORT"])["refusal"], REFUSAL)


@check("input is in host memory by default", "gpu_to_default")
def input_by_default(site: Site) -> None:
    answer = site.floats("gpu_to_default", [1, 2, 3])
    expect("the output", numbers_of(answer["OUT"]), [3, 5, 7])
    report = text_of(answer["REPORT"])
    expect("is_cpu()", report["is_cpu"], True)
    expect("the error of as_numpy()", report["refusal"], "")


@check("output of a GPU to a model on the host", "gpu_to_host")
def output_to_the_host(site: Site) -> None:
    answer = site.floats("gpu_to_host", [1, 2, 3])
    expect("the output", numbers_of(answer["OUT"]), [6, 12, 18])
    expect("is_cpu()", text_of(answer["REPORT"])["is_cpu"], True)


@check("GPU input is handed on as an output", "gpu_through_identity", "identity_to_client")
def handed_on(site: Site) -> None:
    handed = site.floats("gpu_through_identity", [1, 2, 3])
    expect("the output", numbers_of(handed["OUT"]), [3, 5, 7])
    answer = site.floats("identity_to_client", [4, 5])
    expect("the output to the client", numbers_of(answer["OUT"]), [8, 10])
    report = text_of(answer["REPORT"])
    expect("whether input and output are in the same memory", report["out_is_cpu"], report["is_cpu"])
    expect_on_gpu("what was handed on", is_cpu=text_of(handed["REPORT"])["is_cpu"])


@check("outputs on GPU and host in one response", "cases")
def mixed_outputs(site: Site) -> None:
    answer = site.case("mixed")
    expect("the output on the GPU", numbers_of(answer["OUT"]), [4, 5, 6])
    expect("the output on the host", numbers_of(answer["HOST"]), [7, 8])
    expect("the bytes", text_of(answer["REPORT"]), "and bytes")


@check("output without elements", "cases", "gpu_to_gpu")
def empty_output(site: Site) -> None:
    answer = site.case("empty")
    expect("the shape", answer["OUT"].shape, (0,))
    expect("the elements", numbers_of(answer["OUT"]), [])
    expect("the other output", text_of(answer["REPORT"]), "the other")
    expect("the output of the ensemble", numbers_of(site.floats("gpu_to_gpu", [])["OUT"]), [])


@check("output of 64 MB", "cases", small_pool=True)
def large_output(site: Site) -> None:
    data = site.case("large")["OUT"].data
    expect("how many elements come", len(data), LARGE)
    thousand = tuple(float(number) for number in range(1000))
    for start in range(0, LARGE, 1000):
        if data[start : start + 1000] != thousand[: LARGE - start]:
            raise WrongError(f"the elements from {start} on are wrong, first {data[start]!r}")


@check("64 MB from GPU to GPU", "cases", "reader", small_pool=True)
def large_between_models(site: Site) -> None:
    report = _report(site, "large_to_model")
    expect("whether all elements are right", report["right"], True)
    expect_on_gpu("the answer", is_cpu=report["is_cpu"])


def _values(datatype: str) -> tuple[bool | int | float, ...]:
    if datatype.startswith(("FP", "BF")):
        return _FLOATS
    if datatype in _VALUES:
        return _VALUES[datatype]
    signed = datatype.startswith("INT")
    bits = int(datatype.removeprefix("U").removeprefix("INT"))
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return (low, high, 1, 0, 42, high - 1)


def _types_answer(site: Site) -> dict[str, Tensor]:
    return site.infer(TYPES_ENSEMBLE, [Tensor(name, name, (2, 3), _values(name)) for name in TYPES])


def _check_type(site: Site, name: str) -> None:
    answer = _types_answer(site)
    expect("the shape", answer[RETURNED + name].shape, (2, 3))
    expect("the values", answer[RETURNED + name].data, _values(name))
    unknown = text_of(answer["UNKNOWN"]).get(name)
    if unknown is not None:
        raise SkippedError(f"the library does not know the type: {unknown}")
    expect_on_gpu("the input", is_cpu=text_of(answer["REPORT"])[name] == "host")


def _add_type(name: str) -> None:
    check(f"type {name}", TYPES_ENSEMBLE)(lambda site: _check_type(site, name))


for _name in TYPES:
    _add_type(_name)


@check("response of a sender from a thread", "sender")
def sender(site: Site) -> None:
    answer = site.infer("sender", [Tensor("COUNT", "INT32", (1,), (1,))])
    expect("the output", numbers_of(answer["OUT"]), [0, 0.5])


@check("decoupled responses from a thread", "stream")
def decoupled(site: Site) -> None:
    answers = site.stream("stream", {"COUNT": 5})
    expect("the responses", [answer.get("OUT", answer) for answer in answers], [[n, n + 0.5] for n in range(5)])


@check("output that its stream still computes", "cases")
def late_output(site: Site) -> None:
    answer = site.case("late")
    expect("the output", numbers_of(answer["OUT"]), [11, 12, 13])
    _expect_late(text_of(answer["REPORT"])["busy"])


@check("BLS input that its stream still computes", "cases", "reader")
def late_input(site: Site) -> None:
    report = _report(site, "late_to_model")
    expect("the output", report["values"], [12, 13, 14])
    _expect_late(report["busy"])


def _expect_late(busy: bool) -> None:
    if not busy:
        raise SkippedError("a stream that is busy for long enough; the values were right")


@check("two devices", "reader_on_1", "gpu_1_to_gpu_0", "cases", devices=2)
def two_devices(site: Site) -> str | None:
    report = text_of(site.floats("reader_on_1", [1])["REPORT"])
    expect("model_instance_device_id", report["device"], 1)
    answer = site.floats("gpu_1_to_gpu_0", [1, 2, 3])
    expect("the output of device 1 through device 0", numbers_of(answer["OUT"]), [3, 5, 7])
    report = _report(site, "other_device")
    expect("the answer of device 1 to device 0", report["values"], [2, 3, 4])
    return f"the input that came from device 1 was on {text_of(answer['REPORT'])['dlpack_device']}"


@check("BLS: GPU model, preferred memory GPU", "cases", "reader")
def gpu_model_to_gpu(site: Site) -> None:
    report = _report(site, "gpu_model_to_gpu")
    expect("the output", report["values"], [2, 3, 4])
    expect_on_gpu("the output", is_cpu=report["is_cpu"])


@check("BLS: GPU model, preferred memory CPU", "cases", "reader")
def gpu_model_to_cpu(site: Site) -> None:
    report = _report(site, "gpu_model_to_cpu")
    expect("the output", report["values"], [2, 3, 4])
    expect("is_cpu() of the output", report["is_cpu"], True)


@check("BLS: GPU model, no preferred memory", "cases", "reader")
def gpu_model(site: Site) -> str:
    report = _report(site, "gpu_model")
    expect("the output", report["values"], [2, 3, 4])
    expect_on_gpu("the input", is_cpu=report["seen"]["is_cpu"])
    return f"the output came in {'host' if report['is_cpu'] else 'GPU'} memory"


@check("BLS: CPU model with a GPU input", "cases", "host")
def cpu_model(site: Site) -> str:
    report = _report(site, "cpu_model_to_cpu")
    expect("the output", report["values"], [3, 6, 9])
    expect("is_cpu() of its input", report["seen"]["is_cpu"], True)
    expect("is_cpu() of the output", report["is_cpu"], True)
    report = _report(site, "cpu_model_to_gpu")
    expect("the output with preferred memory GPU", report["values"], [3, 6, 9])
    return f"with preferred memory GPU the output came in {'host' if report['is_cpu'] else 'GPU'} memory"


@check("BLS: input without elements", "cases", "reader")
def empty_input(site: Site) -> None:
    expect("the output", _report(site, "empty_to_model")["values"], [])


@check("BLS: stream of GPU responses", "cases", "stream")
def stream(site: Site) -> None:
    report = _report(site, "stream")
    expect("the responses", [part["values"] for part in report], [[n, n + 0.5] for n in range(5)])
    expect_on_gpu("a response", is_cpu=any(part["is_cpu"] for part in report))


@check("BLS: requests gathered with asyncio", "gatherer", "reader")
def gathered(site: Site) -> None:
    count = 8
    report = _checked(text_of(site.infer("gatherer", [Tensor("COUNT", "INT32", (1,), (count,))])["REPORT"]))
    expect("the answers", [part["values"] for part in report], [[n + 1, n * 10 + 1] for n in range(count)])
    expect_on_gpu("an answer", is_cpu=any(part["is_cpu"] for part in report))


@check("references of an exported tensor", "cases")
def references(site: Site) -> None:
    before, during, consumed, after = site.report("references")
    expect("what a capsule adds", during - before, 1)
    expect("what a consumer adds", consumed - before, 1)
    expect("what is left of both", after - before, 0)


@check("memory of tensors and requests is given back", "cases", "reader", small_pool=True)
def given_back(site: Site) -> None:
    site.report("give_back")
    report = _report(site, "give_back")
    expect("what the library has in use", report["after"], report["before"])


@check(f"nothing grows over {REQUESTS} requests", "cases", "reader", "gpu_to_gpu", small_pool=True)
def nothing_grows(site: Site) -> str:
    _many(site, _WARM_UP)
    used, held = driver.used_megabytes(), site.report("held")
    _many(site, REQUESTS)
    now = site.report("held")
    expect("what the library has in use", now["allocated"], held["allocated"])
    expect("free bytes of the region", now["free"], held["free"])
    if used is None:
        return "nvidia-smi is not here, so the device's memory was not looked at"
    more = _growth(used)
    if more > _MARGIN_MEGABYTES:
        raise WrongError(f"the device has {more} MiB more in use")
    return f"the device has {more} MiB more in use"


def _many(site: Site, count: int) -> None:
    """Requests with 4 MB on the GPU in both directions, by BLS and in the ensemble."""
    for number in range(count):
        answer = site.case("megabytes")
        expect(f"the output of request {number}", answer["OUT"].data, (1.0, 2.0))
        if number % 10 == 0:
            site.floats("gpu_to_gpu", [float(number)] * 1000)


def _growth(before: int) -> int:
    """The least growth within some seconds, since other processes can use the device."""
    until = time.monotonic() + _SETTLE_SECONDS
    least = (driver.used_megabytes() or 0) - before
    while least > _MARGIN_MEGABYTES and time.monotonic() < until:
        time.sleep(0.5)
        least = min(least, (driver.used_megabytes() or 0) - before)
    return least


@check("a model on the host opens no device", "host", "gpu_to_host", "reader")
def no_context(site: Site) -> str:
    site.floats("host", [1])
    site.floats("gpu_to_host", [1])  # and with a tensor that comes from a GPU
    site.floats("reader", [1])
    host, reader = site.stub_of("host"), site.stub_of("reader")
    expect("what the model on the host has opened", driver.opened_devices(host), set())
    drivers = [file for file in procfs.mapped_files(host) if "libcuda" in file]
    expect("what it has loaded of the driver", drivers, [])
    seen = driver.compute_processes()
    if host in seen:
        raise WrongError("nvidia-smi lists it")
    if not driver.opened_devices(reader) and reader not in seen:
        raise SkippedError("a way to see contexts: the model on the GPU seems to have none either")
    return "" if reader in seen else "nvidia-smi does not see processes here"
