"""Requests of a model to other models."""

from __future__ import annotations

from typing import Any

from envpack.server.tensors import Tensor
from gpu.catalogue import WrongError, check, expect, expect_on_gpu
from gpu.serving import Site, text_of


def _report(site: Site, case: str) -> dict[str, Any]:
    report = site.report(case)
    assert isinstance(report, dict)
    if "error" in report:
        raise WrongError(str(report["error"]))
    return report


@check("BLS: GPU model, preferred memory GPU", "cases", "reader", without_pool=True)
def gpu_model_to_gpu(site: Site) -> None:
    report = _report(site, "gpu_model_to_gpu")
    expect("the output", report["values"], [2, 3, 4])
    expect_on_gpu(site, "the input", is_cpu=report["seen"]["is_cpu"])
    expect_on_gpu(site, "the output", is_cpu=report["is_cpu"])


@check("BLS: GPU model, preferred memory CPU", "cases", "reader", without_pool=True)
def gpu_model_to_cpu(site: Site) -> None:
    report = _report(site, "gpu_model_to_cpu")
    expect("the output", report["values"], [2, 3, 4])
    expect("is_cpu() of the output", report["is_cpu"], True)


@check("BLS: GPU model, no preferred memory", "cases", "reader")
def gpu_model(site: Site) -> str:
    report = _report(site, "gpu_model")
    expect("the output", report["values"], [2, 3, 4])
    return f"the output came in {'host' if report['is_cpu'] else 'GPU'} memory"


@check("BLS: CPU model with a GPU input", "cases", "host", without_pool=True)
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


@check("BLS: stream of GPU responses", "cases", "stream", without_pool=True)
def stream(site: Site) -> None:
    report = site.report("stream")
    if any("error" in part for part in report):
        raise WrongError(str(report))
    expect("the responses", [part["values"] for part in report], [[n, n + 0.5] for n in range(5)])
    expect_on_gpu(site, "a response", is_cpu=any(part["is_cpu"] for part in report))


@check("BLS: requests gathered with asyncio", "gatherer", "reader", without_pool=True)
def gathered(site: Site) -> None:
    count = 8
    report = text_of(site.infer("gatherer", [Tensor("COUNT", "INT32", (1,), (count,))])["REPORT"])
    if any("error" in part for part in report):
        raise WrongError(str(report))
    expect("the answers", [part["values"] for part in report], [[n + 1, n * 10 + 1] for n in range(count)])
    expect_on_gpu(site, "an answer", is_cpu=any(part["is_cpu"] for part in report))
