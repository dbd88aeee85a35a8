"""Requests of a model to other models."""

from __future__ import annotations

from typing import Any

from envpack.server.tensors import Tensor
from gpu.catalogue import WrongError, check, expect, expect_on_gpu
from gpu.serving import Site, text_of


def _told(site: Site, case: str) -> dict[str, Any]:
    told = site.told(case)
    assert isinstance(told, dict)
    if "error" in told:
        raise WrongError(str(told["error"]))
    return told


@check("BLS: GPU model, preferred memory GPU", "cases", "reader", without_pool=True)
def gpu_model_to_gpu(site: Site) -> None:
    told = _told(site, "gpu_model_to_gpu")
    expect("the output", told["values"], [2, 3, 4])
    expect_on_gpu(site, "the input", is_cpu=told["seen"]["is_cpu"])
    expect_on_gpu(site, "the output", is_cpu=told["is_cpu"])


@check("BLS: GPU model, preferred memory CPU", "cases", "reader", without_pool=True)
def gpu_model_to_cpu(site: Site) -> None:
    told = _told(site, "gpu_model_to_cpu")
    expect("the output", told["values"], [2, 3, 4])
    expect("is_cpu() of the output", told["is_cpu"], True)


@check("BLS: GPU model, no preferred memory", "cases", "reader")
def gpu_model(site: Site) -> str:
    told = _told(site, "gpu_model")
    expect("the output", told["values"], [2, 3, 4])
    return f"the output came in {'host' if told['is_cpu'] else 'GPU'} memory"


@check("BLS: CPU model with a GPU input", "cases", "host", without_pool=True)
def cpu_model(site: Site) -> str:
    told = _told(site, "cpu_model_to_cpu")
    expect("the output", told["values"], [3, 6, 9])
    expect("is_cpu() of its input", told["seen"]["is_cpu"], True)
    expect("is_cpu() of the output", told["is_cpu"], True)
    told = _told(site, "cpu_model_to_gpu")
    expect("the output with preferred memory GPU", told["values"], [3, 6, 9])
    return f"with preferred memory GPU the output came in {'host' if told['is_cpu'] else 'GPU'} memory"


@check("BLS: input without elements", "cases", "reader")
def empty_input(site: Site) -> None:
    expect("the output", _told(site, "empty_to_model")["values"], [])


@check("BLS: stream of GPU responses", "cases", "stream", without_pool=True)
def stream(site: Site) -> None:
    told = site.told("stream")
    if any("error" in part for part in told):
        raise WrongError(str(told))
    expect("the responses", [part["values"] for part in told], [[n, n + 0.5] for n in range(5)])
    expect_on_gpu(site, "a response", is_cpu=any(part["is_cpu"] for part in told))


@check("BLS: requests gathered with asyncio", "gatherer", "reader", without_pool=True)
def gathered(site: Site) -> None:
    count = 8
    told = text_of(site.ask("gatherer", [Tensor("COUNT", "INT32", (1,), (count,))])["TOLD"])
    if any("error" in part for part in told):
        raise WrongError(str(told))
    expect("the answers", [part["values"] for part in told], [[n + 1, n * 10 + 1] for n in range(count)])
    expect_on_gpu(site, "an answer", is_cpu=any(part["is_cpu"] for part in told))
