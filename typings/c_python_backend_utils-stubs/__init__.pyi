"""What the stub gives to a model: everything that talks to the server.

Sizes are in bytes, times in microseconds. Every function raises TritonModelException for what the server or the
contract refuses, and TypeError for arguments of a wrong type.
"""

from asyncio import Future
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from numpy.typing import DTypeLike, NDArray

class TritonModelException(Exception): ...

class _Enum:
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    def __int__(self) -> int: ...

class _ErrorCode(_Enum): ...

class TritonError:
    """An error for a response. It is not an exception."""

    UNKNOWN: _ErrorCode
    INTERNAL: _ErrorCode
    NOT_FOUND: _ErrorCode
    INVALID_ARG: _ErrorCode
    UNAVAILABLE: _ErrorCode
    UNSUPPORTED: _ErrorCode
    ALREADY_EXISTS: _ErrorCode
    CANCELLED: _ErrorCode
    def __init__(self, message: str, code: _ErrorCode = ...) -> None: ...
    def message(self) -> str: ...
    def code(self) -> _ErrorCode: ...

class Tensor:
    """A named tensor in host memory or on a GPU."""

    def __init__(self, name: str, array: NDArray[Any]) -> None:
        """Keep a C-contiguous array by reference; copy any other. BYTES are taken from object or S<n> arrays."""
    def name(self) -> str: ...
    def as_numpy(self) -> NDArray[Any]:
        """The same array at each call. Raises for tensors on a GPU and for BF16."""
    def triton_dtype(self) -> int: ...
    def shape(self) -> list[int]: ...
    def is_cpu(self) -> bool: ...
    @staticmethod
    def empty(name: str, shape: Sequence[int], dtype: DTypeLike) -> Tensor:
        """A tensor whose array is the memory that is sent: fill `as_numpy()` in place. Of envpack's stub only."""
    def to_dlpack(self) -> Any: ...
    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """Of a DLPack capsule, or of an object with `__dlpack__` and `__dlpack_device__`, without a copy."""
    def __dlpack__(
        self,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class InferenceTrace:
    def get_context(self) -> str | None: ...

class MemoryType(_Enum):
    TRITONSERVER_MEMORY_GPU: MemoryType
    TRITONSERVER_MEMORY_CPU: MemoryType

TRITONSERVER_MEMORY_GPU: MemoryType
TRITONSERVER_MEMORY_CPU: MemoryType

class PreferredMemory:
    """Where the outputs of a request to another model should lie."""

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None: ...

class InferenceResponse:
    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: dict[str, bool | int | str] | None = None,
    ) -> None: ...
    def parameters(self) -> str:
        """A JSON object, or an empty text. Servers from 25.02 on have them."""
    def output_tensors(self) -> list[Tensor]: ...
    def has_error(self) -> bool: ...
    def error(self) -> TritonError | None: ...

class InferenceResponseSender:
    """Answers a request from any thread, also after execute() has returned."""

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None: ...
    def is_cancelled(self) -> bool: ...

class ResponseIterator:
    """The responses of a decoupled model. Iterating over it again starts from the first."""

    def __iter__(self) -> ResponseIterator: ...
    def __next__(self) -> InferenceResponse: ...
    def cancel(self) -> None:
        """Have the server cancel the request. Servers from 25.04 on can."""

class InferenceRequest:
    """A request that a client has sent, or one to another model."""

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        *,
        inputs: Sequence[Tensor],
        requested_output_names: Sequence[str],
        model_name: str,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory = ...,
        trace: InferenceTrace = ...,
        parameters: Mapping[str, bool | int | str] | None = None,
    ) -> None: ...
    def inputs(self) -> list[Tensor]: ...
    def request_id(self) -> str: ...
    def correlation_id(self) -> int | str: ...
    def flags(self) -> int: ...
    def set_flags(self, flags: int, /) -> None: ...
    def timeout(self) -> int: ...
    def parameters(self) -> str:
        """A JSON object."""
    def requested_output_names(self) -> set[str]: ...
    def trace(self) -> InferenceTrace: ...
    def get_response_sender(self) -> InferenceResponseSender: ...
    def is_cancelled(self) -> bool: ...
    def set_release_flags(self, flags: int) -> None: ...
    @overload
    def exec(self, decoupled: Literal[False] = False) -> InferenceResponse: ...
    @overload
    def exec(self, decoupled: Literal[True]) -> ResponseIterator: ...
    @overload
    def async_exec(self, decoupled: Literal[False] = False) -> Future[InferenceResponse]: ...
    @overload
    def async_exec(self, decoupled: Literal[True]) -> Future[ResponseIterator]: ...

class Logger:
    class LogLevel(_Enum):
        INFO: Logger.LogLevel
        WARNING: Logger.LogLevel
        ERROR: Logger.LogLevel
        VERBOSE: Logger.LogLevel

    INFO: LogLevel
    WARNING: LogLevel
    ERROR: LogLevel
    VERBOSE: LogLevel
    @staticmethod
    def log(message: str, level: LogLevel = ...) -> None: ...
    @staticmethod
    def log_info(message: str) -> None: ...
    @staticmethod
    def log_warn(message: str) -> None: ...
    @staticmethod
    def log_error(message: str) -> None: ...
    @staticmethod
    def log_verbose(message: str) -> None: ...

class MetricKind(_Enum):
    COUNTER: MetricKind
    GAUGE: MetricKind
    HISTOGRAM: MetricKind

COUNTER: MetricKind
GAUGE: MetricKind
HISTOGRAM: MetricKind

class Metric:
    """Made by MetricFamily.Metric()."""

    def increment(self, value: float, /) -> None: ...
    def set(self, value: float, /) -> None: ...
    def observe(self, value: float, /) -> None: ...
    def value(self) -> float: ...

class MetricFamily:
    COUNTER: MetricKind
    GAUGE: MetricKind
    HISTOGRAM: MetricKind
    def __init__(self, name: str, description: str, kind: MetricKind) -> None: ...
    def Metric(self, labels: Mapping[str, str] | None = None, buckets: list[float] | None = None) -> Metric: ...

class SharedMemory:
    def free_memory(self) -> int: ...

shared_memory: SharedMemory

def load_model(model_name: str, config: str = "", files: Mapping[str, bytes] | None = None) -> None: ...
def unload_model(model_name: str, unload_dependents: bool = False) -> None: ...
def is_model_ready(model_name: str, model_version: str = "") -> bool: ...
