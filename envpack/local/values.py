"""What envpack and a model's process send to each other: requests, responses and their tensors, as bytes.

``stub_src/local/values.h`` has the other side. Numbers have eight bytes, texts their size first; the bytes of a tensor
begin at a multiple of 16.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from envpack.server.tensors import CODES, Tensor, decode, encode

_NUMBER = struct.Struct("<Q")
_SIGNED = struct.Struct("<q")
_FRACTION = struct.Struct("<d")
_ALIGNMENT = 16
# What a `Reader` raises if it reads what no stub has written.
MALFORMED = (struct.error, LookupError, OverflowError, ValueError)

# Triton's numbers of the types, by KServe's names.
_NUMBERS = {name: number for number, name in enumerate((*CODES, "BYTES", "BF16"), start=1)}
_NAMES = {number: name for name, number in _NUMBERS.items()}

# Triton's codes of errors.
INTERNAL = 1
NOT_FOUND = 2
INVALID = 3

SEQUENCE_START = 1
SEQUENCE_END = 2


@dataclass(frozen=True)
class RawTensor:
    """A named tensor."""

    name: str  # name of the input or output
    datatype: str  # KServe's name of the type, for example "FP32"
    shape: tuple[int, ...]  # dimensions
    content: bytes | memoryview  # elements in row-major order, little endian; each string follows its 4-byte length

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def raw(tensor: Tensor) -> RawTensor:
    """A tensor with its elements as bytes."""
    return RawTensor(tensor.name, tensor.datatype, tensor.shape, encode(tensor.datatype, tensor.data))


def readable(tensor: RawTensor) -> Tensor:
    """A tensor with its elements as Python's values."""
    return Tensor(tensor.name, tensor.datatype, tensor.shape, decode(tensor.datatype, bytes(tensor.content)))


@dataclass(frozen=True)
class Request:
    """A request to a model."""

    inputs: tuple[RawTensor, ...]
    _: KW_ONLY
    outputs: frozenset[str] = frozenset()  # names of the requested outputs; empty for all
    id: str = ""  # the client's id of the request
    correlation_id: int | str = 0  # the sequence that the request belongs to; 0 for none
    flags: int = 0  # `SEQUENCE_START` and `SEQUENCE_END`
    timeout: int = 0  # microseconds that the request may wait; 0 for the model's default
    parameters: str = "{}"  # a JSON object
    model: str = ""
    version: int = -1  # -1 for the newest

    @property
    def items(self) -> int:
        return next((tensor.shape[0] for tensor in self.inputs if tensor.shape), 1)


@dataclass(frozen=True)
class Response:
    """A response of a model."""

    outputs: tuple[RawTensor, ...] = ()  # output tensors; none with an error
    error: str | None = None  # the text of an error, None without one
    code: int = INTERNAL  # Triton's code of the error
    parameters: str = ""  # a JSON object, or ""


NOTHING = Response()
"""Stands for a final response that a model ends its responses with, without having sent one more."""


@dataclass
class Writer:
    """A row of values."""

    parts: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0

    def bytes_(self, value: bytes | memoryview) -> None:
        self.parts.append(value)
        self.size += len(value)

    def number(self, value: int) -> None:
        self.bytes_(_SIGNED.pack(value) if value < 0 else _NUMBER.pack(value))

    def fraction(self, value: float) -> None:
        self.bytes_(_FRACTION.pack(value))

    def text(self, value: str | bytes) -> None:
        content = value.encode() if isinstance(value, str) else value
        self.number(len(content))
        self.bytes_(content)

    def texts(self, values: Mapping[str, str]) -> None:
        self.number(len(values))
        for name, value in values.items():
            self.text(name)
            self.text(value)

    def failure(self, error: str | None) -> None:
        self.number(error is not None)
        if error is not None:
            self.text(error)

    def tensors(self, tensors: Sequence[RawTensor]) -> None:
        self.number(len(tensors))
        for tensor in tensors:
            self.text(tensor.name)
            self.number(_NUMBERS[tensor.datatype])
            self.number(len(tensor.shape))
            for size in tensor.shape:
                self.number(size)
            content = memoryview(tensor.content).cast("B")
            self.number(len(content))
            self.bytes_(bytes(-self.size % _ALIGNMENT))
            self.bytes_(content)

    def request(self, number: int, request: Request) -> None:
        self.number(number)
        self.number(number)  # of its response factory, which a server has
        self.text(request.id)
        self.number(isinstance(request.correlation_id, str))
        if isinstance(request.correlation_id, str):
            self.text(request.correlation_id)
        else:
            self.number(request.correlation_id)
        self.text(request.model)
        self.number(request.version)
        self.number(request.flags)
        self.number(request.timeout)
        self.text(request.parameters)
        self.text("")  # context of the trace
        self.number(len(request.outputs))
        for name in request.outputs:
            self.text(name)
        self.tensors(request.inputs)

    def response(self, response: Response) -> None:
        self.number(response.error is not None)
        if response.error is not None:
            self.number(response.code)
            self.text(response.error)
        self.text(response.parameters)
        self.tensors(response.outputs)


class Reader:
    """Reads a row of values."""

    def __init__(self, content: bytes | bytearray) -> None:
        self._content = memoryview(content)
        self._at = 0

    def number(self) -> int:
        (value,) = _NUMBER.unpack_from(self._content, self._at)
        self._at += _NUMBER.size
        return int(value)

    def signed(self) -> int:
        (value,) = _SIGNED.unpack_from(self._content, self._at)
        self._at += _SIGNED.size
        return int(value)

    def fraction(self) -> float:
        (value,) = _FRACTION.unpack_from(self._content, self._at)
        self._at += _FRACTION.size
        return float(value)

    def flag(self) -> bool:
        return self.number() != 0

    def raw(self) -> bytes:
        return bytes(self._bytes(self.number()))

    def text(self) -> str:
        return self.raw().decode("utf-8", "replace")

    def failure(self) -> str | None:
        failed, text = self.flag(), self.text()
        return text if failed else None

    def tensors(self) -> tuple[RawTensor, ...]:
        return tuple(self._tensor() for _ in range(self.number()))

    def response(self) -> Response:
        error, code = None, INTERNAL
        if self.flag():
            code, error = self.number(), self.text()
        parameters = self.text()
        return Response(self.tensors(), error, code, parameters)

    def request(self) -> Request:
        self.number(), self.number()
        name = self.text()
        correlation_id = self.text() if self.flag() else self.number()
        model, version, flags, timeout = self.text(), self.signed(), self.number(), self.number()
        parameters = self.text()
        self.text()  # context of the trace
        outputs = frozenset(self.text() for _ in range(self.number()))
        return Request(
            self.tensors(),
            outputs=outputs,
            id=name,
            correlation_id=correlation_id,
            flags=flags,
            timeout=timeout,
            parameters=parameters,
            model=model,
            version=version,
        )

    def _tensor(self) -> RawTensor:
        name = self.text()
        datatype = _NAMES[self.number()]
        shape = tuple(self.signed() for _ in range(self.number()))
        size = self.number()
        self._at += -self._at % _ALIGNMENT
        return RawTensor(name, datatype, shape, self._bytes(size))

    def _bytes(self, size: int) -> memoryview:
        if size > len(self._content) - self._at:
            raise struct.error("a message is shorter than it says")
        taken = self._content[self._at : self._at + size]
        self._at += size
        return taken
