"""What a server must show that was given GPUs."""

from __future__ import annotations

import re

from envpack.server import Server
from envpack.verification.verdict import Check, failed, passed

_POOL = re.compile(r"CUDA memory pool is created on device (?P<device>\d+)")
_SIGNS = (
    re.compile(r"CUDA driver version is insufficient[^\n\"]*"),
    re.compile(r"no CUDA-capable device is detected"),
    re.compile(r"CUDA memory pool disabled"),
    re.compile(r"Failed to initialize NVML"),
)
_DEVICES = "/dev"
_KERNEL_VERSION = re.compile(r"Kernel Module\D*(?P<version>\d+(\.\d+)+)")


def check_gpu(server: Server) -> Check:
    """Whether the server has found a GPU; that it started says nothing, it starts without one as well."""
    log = server.log()
    devices = sorted({match["device"] for match in _POOL.finditer(log)})
    nodes = [name for name in server.names_in(_DEVICES) if name.startswith("nvidia")]
    sign = next((match[0] for pattern in _SIGNS if (match := pattern.search(log))), "")
    if devices and not sign:
        version = _KERNEL_VERSION.search(server.text_of("/proc/driver/nvidia/version"))
        driver = f", driver {version['version']}" if version else ""
        return passed("gpu", f"the server has made memory pools on GPU {', '.join(devices)}{driver}")
    if not nodes:
        fix = "is there a GPU and its driver? nvidia-smi shows it; a container needs nvidia-container-toolkit as well"
        return failed("gpu", f"the server has no GPU: {sign or 'there is no /dev/nvidia0'}", fix)
    fix = "the driver is older than the release's CUDA, or the server has no access to the device: look at nvidia-smi"
    return failed("gpu", f"the server cannot use the GPU: {sign or 'it made no memory pool on one'}", fix)
