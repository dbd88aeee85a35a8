"""Checks of resources: memory of devices and of the region, references, contexts."""

from __future__ import annotations

import time

from envpack.server import procfs
from gpu import probes
from gpu.catalogue import SkippedError, WrongError, check, expect
from gpu.serving import Site

REQUESTS = 300
_WARM_UP = 30
_MARGIN_MEGABYTES = 64  # 300 requests that each leave a tensor behind leave more than a gigabyte
_SETTLE_SECONDS = 5


@check("references of an exported tensor", "cases")
def references(site: Site) -> None:
    before, during, consumed, after = site.report("references")
    expect("what a capsule adds", during - before, 1)
    expect("what a consumer adds", consumed - before, 1)
    expect("what is left of both", after - before, 0)


@check("memory of tensors and requests is given back", "cases", "reader", without_pool=True)
def given_back(site: Site) -> None:
    site.report("give_back")
    report = site.report("give_back")
    if "error" in report:
        raise WrongError(report["error"])
    expect("what the library has in use", report["after"], report["before"])


@check(f"nothing grows over {REQUESTS} requests", "cases", "reader", "gpu_to_gpu", without_pool=True)
def nothing_grows(site: Site) -> str:
    _many(site, _WARM_UP)
    used, held = probes.used_megabytes(), site.report("held")
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
    least = (probes.used_megabytes() or 0) - before
    while least > _MARGIN_MEGABYTES and time.monotonic() < until:
        time.sleep(0.5)
        least = min(least, (probes.used_megabytes() or 0) - before)
    return least


@check("a model on the host opens no device", "host", "gpu_to_host", "reader")
def no_context(site: Site) -> str:
    site.floats("host", [1])
    site.floats("gpu_to_host", [1])  # and with a tensor that comes from a GPU
    site.floats("reader", [1])
    host, reader = site.stub_of("host"), site.stub_of("reader")
    expect("what the model on the host has opened", probes.opened_devices(host), set())
    drivers = [file for file in procfs.mapped_files(host) if "libcuda" in file]
    expect("what it has loaded of the driver", drivers, [])
    seen = probes.compute_processes()
    if host in seen:
        raise WrongError("nvidia-smi lists it")
    if not probes.opened_devices(reader) and reader not in seen:
        raise SkippedError("a way to see contexts: the model on the GPU seems to have none either")
    return "" if reader in seen else "nvidia-smi does not see processes here"
