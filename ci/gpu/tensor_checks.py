"""Inputs and outputs of execute, by ensembles and straight to the client."""

from __future__ import annotations

from envpack.server.tensors import Tensor
from gpu.catalogue import SkippedError, WrongError, check, expect, expect_on_gpu
from gpu.serving import RETURNED, TYPES, TYPES_ENSEMBLE, Site, numbers_of, text_of

REFUSAL = "Tensor is stored in GPU and cannot be converted to NumPy."
LARGE = 64 * 1024 * 1024 // 4
# Six elements of each type, with its bounds; floats are exact in all their types.
_VALUES: dict[str, tuple[bool | int | float, ...]] = {"BOOL": (True, False, True, True, False, False)}
_FLOATS = (0.0, 1.5, -2.0, 0.25, 96.0, -0.5)


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


@check("output of a GPU to the client", "producer", without_pool=True)
def output_to_the_client(site: Site) -> None:
    expect("the output", numbers_of(site.floats("producer", [1, 2, 3])["OUT"]), [2, 4, 6])


@check("input on the GPU without a copy", "gpu_to_gpu", without_pool=True)
def input_without_a_copy(site: Site) -> None:
    answer = site.floats("gpu_to_gpu", [1, 2, 3])
    expect("the output", numbers_of(answer["OUT"]), [3, 5, 7])
    report = text_of(answer["REPORT"])
    expect_on_gpu(site, "the input", is_cpu=report["is_cpu"])
    expect("__dlpack_device__()", report["dlpack_device"], [2, 0])
    expect("whether the library has it on the GPU", report["library_on_gpu"], True)


@check("as_numpy() of a GPU tensor is refused", "gpu_to_gpu")
def as_numpy_is_refused(site: Site) -> None:
    expect("the error", text_of(site.floats("gpu_to_gpu", [1])["REPORT"])["refusal"], REFUSAL)


@check("input is in host memory by default", "gpu_to_default", without_pool=True)
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


@check("GPU input is handed on as an output", "gpu_through_identity", "identity_to_client", without_pool=True)
def handed_on(site: Site) -> None:
    handed = site.floats("gpu_through_identity", [1, 2, 3])
    expect("the output", numbers_of(handed["OUT"]), [3, 5, 7])
    answer = site.floats("identity_to_client", [4, 5])
    expect("the output to the client", numbers_of(answer["OUT"]), [8, 10])
    report = text_of(answer["REPORT"])
    expect("whether input and output are in the same memory", report["out_is_cpu"], report["is_cpu"])
    expect_on_gpu(site, "what was handed on", is_cpu=text_of(handed["REPORT"])["is_cpu"])


@check("outputs on GPU and host in one response", "cases", without_pool=True)
def mixed_outputs(site: Site) -> None:
    answer = site.case("mixed")
    expect("the output on the GPU", numbers_of(answer["OUT"]), [4, 5, 6])
    expect("the output on the host", numbers_of(answer["HOST"]), [7, 8])
    expect("the bytes", text_of(answer["REPORT"]), "and bytes")


@check("output without elements", "cases", "gpu_to_gpu", without_pool=True)
def empty_output(site: Site) -> None:
    answer = site.case("empty")
    expect("the shape", answer["OUT"].shape, (0,))
    expect("the elements", numbers_of(answer["OUT"]), [])
    expect("the other output", text_of(answer["REPORT"]), "the other")
    expect("the output of the ensemble", numbers_of(site.floats("gpu_to_gpu", [])["OUT"]), [])


@check("output of 64 MB", "cases", without_pool=True)
def large_output(site: Site) -> None:
    data = site.case("large")["OUT"].data
    expect("how many elements come", len(data), LARGE)
    thousand = tuple(float(number) for number in range(1000))
    for start in range(0, LARGE, 1000):
        if data[start : start + 1000] != thousand[: LARGE - start]:
            raise WrongError(f"the elements from {start} on are wrong, first {data[start]!r}")


@check("64 MB from GPU to GPU", "cases", "reader", without_pool=True)
def large_between_models(site: Site) -> None:
    report = site.report("large_to_model")
    if "error" in report:
        raise WrongError(report["error"])
    expect("whether all elements are right", report["right"], True)
    expect_on_gpu(site, "the answer", is_cpu=report["is_cpu"])


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
    expect_on_gpu(site, "the input", is_cpu=text_of(answer["REPORT"])[name] == "host")


def _add_type(name: str) -> None:
    check(f"type {name}", TYPES_ENSEMBLE)(lambda site: _check_type(site, name))


for _name in TYPES:
    _add_type(_name)


@check("response of a sender from a thread", "sender", without_pool=True)
def sender(site: Site) -> None:
    answer = site.infer("sender", [Tensor("COUNT", "INT32", (1,), (1,))])
    expect("the output", numbers_of(answer["OUT"]), [0, 0.5])


@check("decoupled responses from a thread", "stream", without_pool=True)
def decoupled(site: Site) -> None:
    answers = site.stream("stream", {"COUNT": 5})
    expect("the responses", [answer.get("OUT", answer) for answer in answers], [[n, n + 0.5] for n in range(5)])


@check("output that its stream still computes", "cases", without_pool=True)
def late_output(site: Site) -> None:
    answer = site.case("late")
    expect("the output", numbers_of(answer["OUT"]), [11, 12, 13])
    _expect_late(text_of(answer["REPORT"])["busy"])


@check("BLS input that its stream still computes", "cases", "reader")
def late_input(site: Site) -> None:
    report = site.report("late_to_model")
    if "error" in report:
        raise WrongError(report["error"])
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
    report = site.report("other_device")
    if "error" in report:
        raise WrongError(report["error"])
    expect("the answer of device 1 to device 0", report["values"], [2, 3, 4])
    return f"the input that came from device 1 was on {text_of(answer['REPORT'])['dlpack_device']}"
