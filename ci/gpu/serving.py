"""A repository with the models of these checks, and the real server on it."""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envpack.repository import set_execution_environment
from envpack.server import find_server
from envpack.server.kserve import Client, RequestError
from envpack.server.process import ProcessRuntime, ProcessServer
from envpack.server.tensors import Tensor, Value
from envpack.stub import STUB_NAME
from envpack.verification.stub_processes import stub_processes
from gpu.driver import NoGpuError, find_driver
from gpu.environment import ModelSetup

MODELS = Path(__file__).parent / "models"
TYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
)  # fmt: skip
REQUEST_SECONDS = 60
LOAD_SECONDS = 300  # the first import of PyTorch from a cold disk takes long
START_SECONDS = 90
_LOADERS = 4
_NO_COPY = 'parameters: { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value: { string_value: "no" } }'
_SECOND_DEVICE = ("gpus: [ 0 ]", "gpus: [ 1 ]")
# Models with the code of another model and a changed configuration.
VARIANTS = {
    "reader_by_default": ("reader", (_NO_COPY, "")),
    "stream": ("sender", ("max_batch_size: 0", "max_batch_size: 0\nmodel_transaction_policy { decoupled: true }")),
    "producer_on_1": ("producer", _SECOND_DEVICE),
    "reader_on_1": ("reader", _SECOND_DEVICE),
}
# Chains of models, IN to OUT; the last model's REPORT is an output too.
ENSEMBLES = {
    "gpu_to_gpu": ("producer", "reader"),
    "gpu_to_default": ("producer", "reader_by_default"),
    "gpu_to_host": ("producer", "host"),
    "gpu_through_identity": ("producer", "identity", "reader"),
    "identity_to_client": ("producer", "identity"),
    "gpu_1_to_gpu_0": ("producer_on_1", "reader"),
    "host_to_host": ("host", "host"),
}
TYPES_ENSEMBLE = "types"
RETURNED = "OUT_"  # start of the names of its outputs


@dataclass
class Site:
    """A running server and the models loaded in it.

    Attributes:
        has_pool: whether the server has a CUDA memory pool.
        failures: error messages of failed loads, by model.

    """

    server: ProcessServer
    has_pool: bool
    failures: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = Client(self.server.url, timeout=REQUEST_SECONDS)

    def load(self, names: Iterable[str]) -> None:
        """Load models, ensembles after all others; records the errors of failed loads."""
        wanted = sorted(set(names) - set(self.failures))
        composed = [name for name in wanted if name in ENSEMBLES or name == TYPES_ENSEMBLE]
        with ThreadPoolExecutor(_LOADERS) as pool:
            list(pool.map(self._load, [name for name in wanted if name not in composed]))
            list(pool.map(self._load, composed))

    def _load(self, name: str) -> None:
        try:
            self.client.load(name, timeout=LOAD_SECONDS)
        except RequestError as error:
            self.failures[name] = error.message

    def floats(self, model: str, values: Sequence[float]) -> dict[str, Tensor]:
        return self.infer(model, [Tensor("IN", "FP32", (len(values),), tuple(values))])

    def case(self, name: str) -> dict[str, Tensor]:
        """The outputs of a method of the model ``cases``."""
        return self.infer("cases", [Tensor("CASE", "BYTES", (1,), (name.encode(),))])

    def report(self, name: str) -> Any:
        """The JSON report of such a method."""
        return text_of(self.case(name)["REPORT"])

    def infer(self, model: str, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        return {output.name: output for output in self.client.infer(model, inputs, binary=True)}

    def stream(self, model: str, request: dict[str, int]) -> list[dict[str, Any]]:
        """The responses of a decoupled model."""
        url = f"{self.server.url}/v2/models/{model}/generate_stream"
        headers = {"Content-Type": "application/json", "Connection": "close"}
        body = json.dumps(request).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(url, body, headers), timeout=REQUEST_SECONDS) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise RequestError(error.read().decode("utf-8", "replace"), status=error.code) from error
        return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]

    def stub_of(self, model: str) -> int:
        """The process that runs a model's only instance."""
        for process in stub_processes(self.server, model):
            return process.pid
        raise LookupError(f"{model} has no stub")


def text_of(tensor: Tensor) -> Any:
    (element,) = tensor.data
    assert isinstance(element, bytes)
    return json.loads(element)


def numbers_of(tensor: Tensor) -> list[Value]:
    return list(tensor.data)


@contextmanager
def serving(setup: ModelSetup, repository: Path, *, pool: dict[int, int]) -> Iterator[Site]:
    """A server without a model loaded; ``pool`` is the size of the CUDA memory pool of each device."""
    options = tuple(f"--cuda-memory-pool-byte-size={device}:{size}" for device, size in pool.items())
    runtime = ProcessRuntime(
        find_server(),
        environment=_variables(setup),
        arguments=options,
        start_seconds=START_SECONDS,
    )
    with runtime.start(repository) as server:
        yield Site(server, has_pool=any(pool.values()))


def _variables(setup: ModelSetup) -> dict[str, str]:
    """Environment variables for the server: the folder of the driver, and the visible devices."""
    names = ("CUDA_", "NVIDIA_", "CUPY_")
    kept = {name: value for name, value in os.environ.items() if name.startswith(names)}
    folders = [str(find_server().library_path), *map(str, setup.libraries)]
    with suppress(NoGpuError):  # models that need none can be served
        folders.append(find_driver()[1].rstrip("/"))
    folders += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return {**kept, "LD_LIBRARY_PATH": ":".join(dict.fromkeys(filter(None, folders)))}


def fill(repository: Path, setup: ModelSetup) -> None:
    """Put every model into the repository; the server loads models on request only."""
    for folder in sorted(MODELS.iterdir()):
        if (folder / "config.pbtxt").is_file():
            _place(repository, folder.name, folder.name, setup)
    for name, (source, change) in VARIANTS.items():
        _place(repository, name, source, setup, change)
    for name, parts in ENSEMBLES.items():
        _write_ensemble(repository / name, _chain(parts))
    _write_ensemble(repository / TYPES_ENSEMBLE, _types())


def _place(repository: Path, name: str, source: str, setup: ModelSetup, change: tuple[str, str] = ("", "")) -> None:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    shutil.copy(MODELS / source / "1/model.py", folder / "1/model.py")
    if setup.library:
        shutil.copy(MODELS / f"shared/{setup.library}_gpu.py", folder / "1/envpack_gpu.py")
    shutil.copy(setup.stub, folder / STUB_NAME)
    config = folder / "config.pbtxt"
    text = (MODELS / source / "config.pbtxt").read_text(encoding="utf-8").replace(*change)
    config.write_text(set_execution_environment(text, str(setup.environment), config), encoding="utf-8")


def _write_ensemble(folder: Path, text: str) -> None:
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(f'platform: "ensemble"\nmax_batch_size: 0\n{text}', encoding="utf-8")


def _chain(parts: tuple[str, ...]) -> str:
    between = ["IN", *(f"between_{number}" for number in range(1, len(parts))), "OUT"]
    steps = []
    for number, model in enumerate(parts):
        last = number == len(parts) - 1
        maps = _mapped("input", "IN", between[number]) + _mapped("output", "OUT", between[number + 1])
        steps.append(_step(model, maps + (_mapped("output", "REPORT", "REPORT") if last else "")))
    report = ', { name: "REPORT" data_type: TYPE_STRING dims: [ 1 ] }'
    return (
        'input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        f'output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }}{report} ]\n'
        f"ensemble_scheduling {{ step [{', '.join(steps)}] }}\n"
    )


def _types() -> str:
    """All types to the GPU, through the second model, and back."""
    # With the same name for an input and an output, the ensemble would run its first step forever.
    inputs, outputs = (
        [f'{{ name: "{prefix}{name}" data_type: TYPE_{name} dims: [ -1, 3 ] }}' for name in TYPES]
        for prefix in ("", RETURNED)
    )
    reports = [f'{{ name: "{name}" data_type: TYPE_STRING dims: [ 1 ] }}' for name in ("UNKNOWN", "REPORT")]
    into = [_mapped("input", name, name) + _mapped("output", name, f"gpu_{name}") for name in TYPES]
    back = [_mapped("input", name, f"gpu_{name}") + _mapped("output", name, RETURNED + name) for name in TYPES]
    first = _step("types_to_gpu", "".join(into) + _mapped("output", "REPORT", "UNKNOWN"))
    second = _step("types_on_gpu", "".join(back) + _mapped("output", "REPORT", "REPORT"))
    return (
        f"input [ {', '.join(inputs)} ]\noutput [ {', '.join(outputs + reports)} ]\n"
        f"ensemble_scheduling {{ step [{first}, {second}] }}\n"
    )


def _mapped(side: str, inner: str, outer: str) -> str:
    return f'{side}_map {{ key: "{inner}" value: "{outer}" }} '


def _step(model: str, maps: str) -> str:
    return f'{{ model_name: "{model}" model_version: -1 {maps}}}'
