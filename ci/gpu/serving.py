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

from envpack.repository.config_editor import set_execution_environment
from envpack.server.kserve import Client, RequestError
from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime, ProcessServer
from envpack.server.tensors import Tensor, Value
from envpack.support.placed_files import STUB_NAME
from envpack.verification.stub_processes import stub_processes
from gpu.driver import NoGpuError, find_driver
from gpu.environment import ModelSetup

CODE = Path(__file__).parent / "models"
TYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
)  # fmt: skip
REQUEST_SECONDS = 60
LOAD_SECONDS = 300  # the first import of PyTorch from a cold disk takes long
START_SECONDS = 90
_LOADERS = 4
_IN, _OUT, _REPORT, _COUNT = "IN FP32 -1", "OUT FP32 -1", "REPORT STRING 1", "COUNT INT32 1"
_TYPED = tuple(f"{name} {name} -1,3" for name in TYPES)


@dataclass(frozen=True)
class Model:
    """A model of the repository.

    Attributes:
        code: name of its file in ``models``.
        does: what that does for it.
        inputs: name, type and dimensions of each.
        outputs: the same of each output.
        device: the GPU that it runs on; None for the host.
        takes_gpu: whether its inputs may come in GPU memory.
        decoupled: whether it sends any number of responses.

    """

    code: str
    does: str
    inputs: tuple[str, ...] = (_IN,)
    outputs: tuple[str, ...] = (_OUT, _REPORT)
    device: int | None = 0
    takes_gpu: bool = False
    decoupled: bool = False


MODELS = {
    "host": Model("host", "triple", device=None),
    "identity": Model("host", "hand_on", takes_gpu=True),
    "producer": Model("model", "produce", outputs=(_OUT,)),
    "producer_on_1": Model("model", "produce", outputs=(_OUT,), device=1),
    "reader": Model("model", "read", takes_gpu=True),
    "reader_by_default": Model("model", "read"),
    "reader_on_1": Model("model", "read", takes_gpu=True, device=1),
    "sender": Model("model", "send", (_COUNT,), (_OUT,)),
    "stream": Model("model", "send", (_COUNT,), (_OUT,), decoupled=True),
    "gatherer": Model("gatherer", "gather", (_COUNT,), (_REPORT,), takes_gpu=True),
    "types_to_gpu": Model("model", "types_to_gpu", _TYPED, (*_TYPED, _REPORT)),
    "types_on_gpu": Model("model", "types_on_gpu", _TYPED, (*_TYPED, _REPORT), takes_gpu=True),
    "cases": Model("model", "case", ("CASE STRING 1",), (_OUT, "HOST FP32 -1", _REPORT), takes_gpu=True),
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
        failures: error messages of failed loads, by model.

    """

    server: ProcessServer
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
        yield Site(server)


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
    for name, model in MODELS.items():
        _place(repository / name, model, setup)
    for name, parts in ENSEMBLES.items():
        _write_ensemble(repository / name, [_IN], [_OUT, _REPORT], _chain(parts))
    _write_types(repository / TYPES_ENSEMBLE)


def _place(folder: Path, model: Model, setup: ModelSetup) -> None:
    (folder / "1").mkdir(parents=True)
    shutil.copy(CODE / f"{model.code}.py", folder / "1/model.py")
    if setup.library:
        shutil.copy(CODE / f"{setup.library}_gpu.py", folder / "1/envpack_gpu.py")
    shutil.copy(setup.stub, folder / STUB_NAME)
    config = folder / "config.pbtxt"
    config.write_text(set_execution_environment(_config(model), str(setup.environment), config), encoding="utf-8")


def _config(model: Model) -> str:
    kind = "KIND_CPU" if model.device is None else f"KIND_GPU gpus: [ {model.device} ]"
    lines = [
        'backend: "python"\nmax_batch_size: 0',
        *_tensors(model.inputs, model.outputs),
        f"instance_group [ {{ count: 1 kind: {kind} }} ]",
        _parameter("does", model.does),
        _parameter("FORCE_CPU_ONLY_INPUT_TENSORS", "no") if model.takes_gpu else "",
        "model_transaction_policy { decoupled: true }" if model.decoupled else "",
    ]
    return "\n".join(filter(None, lines)) + "\n"


def _tensors(inputs: Iterable[str], outputs: Iterable[str]) -> Iterator[str]:
    for side, tensors in (("input", inputs), ("output", outputs)):
        parts = (tensor.split() for tensor in tensors)
        entries = (f'{{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] }}' for name, kind, dims in parts)
        yield f"{side} [ {', '.join(entries)} ]"


def _parameter(key: str, value: str) -> str:
    return f'parameters: {{ key: "{key}" value: {{ string_value: "{value}" }} }}'


def _write_ensemble(folder: Path, inputs: Iterable[str], outputs: Iterable[str], steps: Iterable[str]) -> None:
    (folder / "1").mkdir(parents=True)
    lines = ['platform: "ensemble"\nmax_batch_size: 0', *_tensors(inputs, outputs)]
    lines.append(f"ensemble_scheduling {{ step [{', '.join(steps)}] }}\n")
    (folder / "config.pbtxt").write_text("\n".join(lines), encoding="utf-8")


def _chain(parts: tuple[str, ...]) -> Iterator[str]:
    between = ["IN", *(f"between_{number}" for number in range(1, len(parts))), "OUT"]
    for number, model in enumerate(parts):
        last = number == len(parts) - 1
        maps = _mapped("input", "IN", between[number]) + _mapped("output", "OUT", between[number + 1])
        yield _step(model, maps + (_mapped("output", "REPORT", "REPORT") if last else ""))


def _write_types(folder: Path) -> None:
    """All types to the GPU, through the second model, and back."""
    # With the same name for an input and an output, the ensemble would run its first step forever.
    returned = [RETURNED + tensor for tensor in _TYPED]
    into = [_mapped("input", name, name) + _mapped("output", name, f"gpu_{name}") for name in TYPES]
    back = [_mapped("input", name, f"gpu_{name}") + _mapped("output", name, RETURNED + name) for name in TYPES]
    first = _step("types_to_gpu", "".join(into) + _mapped("output", "REPORT", "UNKNOWN"))
    second = _step("types_on_gpu", "".join(back) + _mapped("output", "REPORT", "REPORT"))
    _write_ensemble(folder, _TYPED, [*returned, "UNKNOWN STRING 1", _REPORT], [first, second])


def _mapped(side: str, inner: str, outer: str) -> str:
    return f'{side}_map {{ key: "{inner}" value: "{outer}" }} '


def _step(model: str, maps: str) -> str:
    return f'{{ model_name: "{model}" model_version: -1 {maps}}}'
