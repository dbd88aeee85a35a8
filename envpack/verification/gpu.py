"""Checks GPUs: the server has one, and a probe model passes a tensor on it from one process to another."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envpack.repository.config_editor import set_execution_environment
from envpack.repository.model import Model
from envpack.server.choice import GPUS
from envpack.server.interface import Server
from envpack.server.kserve import Client, RequestError
from envpack.server.log import before_loads
from envpack.server.tensors import Tensor
from envpack.support.bounded_reading import parse_json
from envpack.support.errors import InputError
from envpack.support.placed_files import CONFIG_NAME, STUB_NAME
from envpack.verification.measurements import measure_environment
from envpack.verification.verdict import Check, check, failed, passed, skipped

_POOL = re.compile(r"CUDA memory pool is created on device (?P<device>\d+)")
_SIGNS = (
    re.compile(r"CUDA driver version is insufficient[^\n\"]*"),
    re.compile(r"no CUDA-capable device is detected"),
    re.compile(r"CUDA memory pool disabled"),
    re.compile(r"Failed to initialize NVML"),
)
_DEVICES = "/dev"
_KERNEL_VERSION = re.compile(r"Kernel Module\D*(?P<version>\d+(\.\d+)+)")
PROBE, PEER = "envpack_gpu_probe", "envpack_gpu_probe_peer"
_CODE = Path(__file__).with_name("gpu_probe_model.py")
_ELEMENTS = 1 << 20
_LIBRARIES = {"torch": "PyTorch", "cupy": "CuPy"}
_ON_GPU = "instance_group [ { count: 1 kind: KIND_GPU } ]\n"
_CONFIGS = {
    PROBE: """backend: "python"
input [ { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "REPORT" data_type: TYPE_STRING dims: [ 1 ] } ]
""",
    PEER: """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }
""",
}


@check("gpu", of="server", step="start", condition="See [below](#gpus)")
def check_gpu(server: Server, chosen: str | None = None) -> Check:
    """Whether the server uses a GPU; a successful start proves nothing, since a server also starts without a GPU."""
    log = before_loads(server.log())
    devices = sorted({match["device"] for match in _POOL.finditer(log)})
    nodes = [name for name in server.list_folder(_DEVICES) if name.startswith("nvidia")]
    sign = next((match[0] for pattern in _SIGNS if (match := pattern.search(log))), "")
    if devices and not sign:
        version = _KERNEL_VERSION.search(server.read_text("/proc/driver/nvidia/version"))
        driver = f", driver {version['version']}" if version else ""
        return passed("gpu", f"the server created memory pools on GPU {', '.join(devices)}{driver}")
    if not nodes:
        fix = "check GPU and driver with nvidia-smi; a container also needs nvidia-container-toolkit"
        return failed("gpu", f"the server has no GPU: {sign or 'there is no /dev/nvidia0'}", fix)
    if chosen is not None:
        what = f"the server cannot use the GPU, with {GPUS}={chosen}: {sign or 'it created no memory pool on it'}"
        return failed("gpu", what, f"unset {GPUS}, or name GPUs that nvidia-smi -L lists")
    fix = "the driver is older than the release's CUDA, or the server cannot access the device: check with nvidia-smi"
    return failed("gpu", f"the server cannot use the GPU: {sign or 'it created no memory pool on it'}", fix)


def choose_probed_model(models: Sequence[Model]) -> Model | None:
    return next((model for model in models if _library_of(model)), None)


def write_probe(repository: Path, like: Model, environment: str) -> None:
    for name, config in _CONFIGS.items():
        folder = repository / name
        (folder / "1").mkdir(parents=True)
        shutil.copy(_CODE, folder / "1/model.py")
        text = set_execution_environment(config + _ON_GPU, environment, folder / CONFIG_NAME)
        (folder / CONFIG_NAME).write_text(text, encoding="utf-8")
        if (like.folder / STUB_NAME).is_file():
            shutil.copy(like.folder / STUB_NAME, folder / STUB_NAME)
    for folder in (entry for entry in repository.rglob("*") if entry.is_dir()):
        folder.chmod(0o755)  # in a container the server runs as another user


@check("gpu-tensors", of="server", step="start", condition="See [below](#gpus)")
def run_probe(client: Client, like: Model, timeout: float) -> Check:
    """Load the probe, which sends a tensor on the GPU to another process and compares what returns."""
    try:
        for name in (PEER, PROBE):
            client.load(name, timeout=timeout)
        count = Tensor("COUNT", "INT32", (1,), (_ELEMENTS,))
        (answer,) = client.infer(PROBE, (count,), binary=True)
        report: dict[str, Any] = parse_json(bytes(answer.data[0]))  # type: ignore[arg-type]  # a string tensor's elements are bytes
    except RequestError as error:
        fix = f"check with nvidia-smi that the library in {like.name}'s environment supports this driver"
        return failed("gpu-tensors", error.message.splitlines()[0], fix)
    finally:
        for name in (PROBE, PEER):
            with contextlib.suppress(RequestError):  # never loaded, or the server has ended, which other checks report
                client.unload(name)
    wrong = [name for name in ("sent_on_gpu", "returned_on_gpu", "equal") if not report.get(name)]
    if wrong:
        fix = "give the models envpack's stub: envpack build --stub always"
        return failed("gpu-tensors", f"a tensor sent from process to process: not {', not '.join(wrong)}", fix)
    evidence = f"{_ELEMENTS} numbers passed from one process to another and back on the GPU with {report['library']}"
    return passed("gpu-tensors", f"{evidence}, {report['device']}")


def skip_probe(models: Sequence[Model]) -> Check:
    names = " nor ".join(_LIBRARIES.values())
    return skipped("gpu-tensors", f"not checked: no environment of {len(models)} models has {names}")


def _library_of(model: Model) -> str:
    try:
        size = measure_environment(model)
    except InputError:
        return ""
    names = {package.name.lower() for package in size.packages} if size else set()
    return next((library for library in _LIBRARIES if any(name.startswith(library) for name in names)), "")
