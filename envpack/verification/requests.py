"""Generates requests for a loaded model from its configuration."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from envpack.server.tensors import FLOATING, ServedConfig, Tensor, TensorConfig, Value
from envpack.verification.answers import in_sequence
from envpack.verification.contents import CONTENTS, Content, content

_MOST_ELEMENTS = 16 << 20  # of all inputs of a generated request, or bytes of its strings
_MOST_FILLINGS = 64
_LONGER = 3  # elements of a variable dimension, after one
_FOREIGN_TEXT = " ".join(["1 café 日本"] * 150).encode()  # more than the 512 tokens that many models take
_SIZES = (1, 16, 224, 16_000)  # for one element, a few words, an image, a second of sound
_MOST_IN_A_BATCH = 4 << 20  # elements, or bytes of strings, of a full batch
_FULL_BATCH_SECONDS = 5.0  # that a full batch may take, by what fewer items have taken
_MOST_PARTIAL = 8  # requests with one optional input
_TOGETHER = "items in one request"


@dataclass(frozen=True)
class SmokeRequest:
    """A request with generated inputs, or with the user's first sample."""

    description: str  # what is special about the request, as in "sent with every input"
    inputs: tuple[Tensor, ...]
    parameters: Mapping[str, object] = field(default_factory=dict)  # parameters of the request
    outputs: tuple[str, ...] = ()  # requested outputs; empty requests all


@dataclass(frozen=True)
class Filling:
    """What generated inputs hold."""

    # What is in inputs that can hold a file, by name; text in all others.
    contents: Mapping[str, Content] = field(default_factory=dict)
    size: int = 1  # length of every variable dimension
    number: int = 1  # element of inputs of numbers
    parts: int = 1  # of each content, which decide about its length

    def __str__(self) -> str:
        """What is not plain about it, as in ``"PNG in IMAGE, variable dimensions of 224, zeros"``."""
        parts = [f"{kind} in {name}" for name, kind in self.contents.items() if kind != "text"]
        parts += [f"variable dimensions of {self.size}"] if self.size != 1 else []
        parts += ["zeros"] if self.number == 0 else []
        return ", ".join(parts)


PLAIN = Filling()


def fillings(config: ServedConfig) -> Iterator[Filling]:
    """What generated inputs of a model may hold: first ones, then what differs from them in ever more ways.

    Strings, and bytes of any length, hold text, JSON, an image or sound; variable dimensions have several sizes;
    numbers are ones, or zeros for a model that takes them for an index or a label. None if the inputs would be so large
    that a request proves little.
    """
    variable = any(dim < 0 for entry in config.inputs for dim in _own_dims(entry, config))
    sizes = [size for size in (_SIZES if variable else _SIZES[:1]) if _elements(config, size) <= _MOST_ELEMENTS]
    has_numbers = any(entry.datatype not in ("BYTES", "BOOL") for entry in config.inputs)
    numbers = (1, 0) if has_numbers else (1,)
    choices = itertools.product(_choices_of_contents(config), sizes, numbers)
    ordered = sorted((Filling(*choice) for choice in choices), key=_distance)
    yield from ordered[:_MOST_FILLINGS]


def _choices_of_contents(config: ServedConfig) -> list[dict[str, Content]]:
    names = [entry.name for entry in config.inputs if _can_hold_file(entry, config)]
    if len(names) > 2:
        return [dict.fromkeys(names, kind) for kind in CONTENTS]
    return [dict(zip(names, kinds, strict=True)) for kinds in itertools.product(CONTENTS, repeat=len(names))]


def _can_hold_file(entry: TensorConfig, config: ServedConfig) -> bool:
    return entry.datatype == "BYTES" or (entry.datatype == "UINT8" and _own_dims(entry, config) == (-1,))


def _distance(filling: Filling) -> int:
    kinds = {kind for kind in filling.contents.values() if kind != "text"}
    return len(kinds) + (filling.size != 1) + (filling.number != 1)


def generate_requests(config: ServedConfig, filling: Filling = PLAIN) -> Iterator[SmokeRequest]:
    """Generate a request with all inputs, one with the required inputs only, and one with a batch of two.

    Plainly, every element is one (``"1"`` in strings) and every variable dimension is 1. Ones are safer than zeros,
    since a model can divide by its input or use it as an index. A model without inputs gets no request.
    """
    parameters = in_sequence(1, 0, 1) if config.in_sequences else {}
    if not config.inputs or inputs_too_large(config):
        return
    special = f" ({filling})" if str(filling) else ""
    every = _inputs(config, filling, filling.number)
    if sum(map(_size, every)) > _MOST_ELEMENTS:  # sound in each of thousands of strings
        return
    yield SmokeRequest(f"with every input{special}", every, parameters)
    needed = tuple(tensor for tensor, entry in zip(every, config.inputs, strict=True) if not entry.optional)
    if needed and len(needed) < len(config.inputs):
        yield SmokeRequest("without the optional inputs", needed, parameters)
    if config.largest_batch > 1 and not config.sequence and 2 * _elements(config, filling.size) <= _MOST_ELEMENTS:
        two = _inputs(config, filling, filling.number, batch=2)
        yield SmokeRequest(f"with two {_TOGETHER}", two, parameters)


def and_full_batch(config: ServedConfig, requests: Sequence[SmokeRequest]) -> Iterator[SmokeRequest]:
    """Requests, and the last one with as many items as ``max_batch_size``, its size and the time that it took allow."""
    items, seconds = 0, 0.0
    for request in requests:
        items = items_of(config, request.inputs)
        started = time.monotonic()
        yield request
        seconds = time.monotonic() - started
    if config.sequence or not items:
        return
    size = sum(map(_size, request.inputs)) or 1
    most = items * min(_MOST_IN_A_BATCH // size, int(_FULL_BATCH_SECONDS / max(seconds, 0.001)))
    count = min(config.largest_batch, most)
    if count > max(items, 2) and all(
        tensor.shape[:1] == (items,) and not tensor.size_fault for tensor in request.inputs
    ):
        yield replace(with_items(request, count), description=f"with {count} {_TOGETHER}")


def items_of(config: ServedConfig, inputs: Sequence[Tensor]) -> int:
    """How many items a request has; 0 if the model does not batch, or does not answer once for each request."""
    return inputs[0].shape[0] if config.batched and not config.decoupled and inputs and inputs[0].shape else 0


def _size(tensor: Tensor) -> int:
    return sum(len(value) if isinstance(value, bytes) else 1 for value in tensor.data)


def with_items(request: SmokeRequest, count: int) -> SmokeRequest:
    """A request with so many items, those of another one in turn."""

    def repeated(tensor: Tensor) -> Tensor:
        length = len(tensor.data) // tensor.shape[0] * count
        data = tuple(itertools.islice(itertools.cycle(tensor.data), length))
        return replace(tensor, shape=(count, *tensor.shape[1:]), data=data)

    return replace(request, inputs=tuple(map(repeated, request.inputs)))


def in_one_request(config: ServedConfig, first: SmokeRequest, second: SmokeRequest) -> SmokeRequest | None:
    """Two requests for one item each as one for both; None if the model, or their inputs, do not allow that."""
    one_item = [items_of(config, request.inputs) == 1 for request in (first, second)]
    shapes = [[(tensor.name, tensor.shape) for tensor in request.inputs] for request in (first, second)]
    is_alike = shapes[0] == shapes[1] and all(shape[:1] == (1,) for _, shape in shapes[0])
    if config.sequence or config.largest_batch < 2 or not (all(one_item) and is_alike):
        return None
    pairs = zip(first.inputs, second.inputs, strict=True)
    both = (replace(one, shape=(2, *one.shape[1:]), data=(*one.data, *two.data)) for one, two in pairs)
    return replace(first, description=f"with two different {_TOGETHER}", inputs=tuple(both))


def generate_variants(
    config: ServedConfig, count: int, filling: Filling = PLAIN, *, uneven: bool = False
) -> Iterator[SmokeRequest]:
    """Generate requests with all inputs; each differs from the others, so that answers can be told apart.

    The first is that of `generate_requests`; the elements of the next are larger by one, which a model may still take
    for indices. Every second one is false in inputs of booleans. With ``uneven``, every second one has contents and
    ragged inputs of another length.
    """
    if not config.inputs or inputs_too_large(config):
        return
    other = replace(filling, parts=2, size=filling.size + config.ragged)
    for at, number in enumerate(range(filling.number, filling.number + count)):
        inputs = _inputs(config, other if uneven and at % 2 else filling, number)
        yield SmokeRequest(f"with {number} in every input", inputs)


def generate_other(config: ServedConfig, request: SmokeRequest, filling: Filling) -> SmokeRequest | None:
    """Generate a request whose inputs differ from those of another one, and from a multiple of them; None if none does.

    Every second element is larger by one, in every second input the others: a model that normalises its input has the
    same answer to ones and to twos, and one that subtracts its inputs to equal ones.
    """
    *_, larger = generate_variants(config, 2, filling)
    inputs = tuple(map(_alternated, itertools.count(), request.inputs, larger.inputs))
    return None if inputs == request.inputs else replace(larger, inputs=inputs, parameters=request.parameters)


def generate_longer(config: ServedConfig, request: SmokeRequest, filling: Filling) -> SmokeRequest | None:
    """A request with several elements in variable dimensions, for which code for one fails; or None."""
    if filling.size != 1 or _elements(config, _LONGER) > _MOST_ELEMENTS:
        return None
    longer = next(generate_requests(config, replace(filling, size=_LONGER)), request)
    return None if longer.inputs == request.inputs else longer


def generate_partial(config: ServedConfig, request: SmokeRequest) -> Iterator[SmokeRequest]:
    """Generate requests that have one of several optional inputs each."""
    optional = [entry.name for entry in config.inputs if entry.optional]
    for name in optional[:_MOST_PARTIAL] if len(optional) > 1 else ():
        inputs = tuple(tensor for tensor in request.inputs if tensor.name == name or tensor.name not in optional)
        yield replace(request, description=f"with {name} and no other optional input", inputs=inputs)


def generate_foreign_text(request: SmokeRequest, filling: Filling) -> SmokeRequest | None:
    """Generate a request with long text of other languages in each input that holds text; None if none does."""
    inputs = tuple(
        replace(tensor, data=(_FOREIGN_TEXT,) * len(tensor.data))
        if tensor.datatype == "BYTES" and filling.contents.get(tensor.name, "text") == "text"
        else tensor
        for tensor in request.inputs
    )
    description = f"with long text that is not ASCII ({len(_FOREIGN_TEXT)} bytes, {_FOREIGN_TEXT[:14].decode()!r}, …)"
    return None if inputs == request.inputs else replace(request, description=description, inputs=inputs)


def _alternated(number: int, tensor: Tensor, other: Tensor) -> Tensor:
    """Every second element of another tensor; all of it if it holds a file."""
    if len(set(tensor.data)) > 1:
        return other
    pairs = enumerate(zip(tensor.data, other.data, strict=True), number)
    return replace(tensor, data=tuple(pair[1 - at % 2] for at, pair in pairs))


def inputs_too_large(config: ServedConfig) -> bool:
    """Whether no request is generated because its inputs would be so large that the request proves little."""
    return _elements(config, 1) > _MOST_ELEMENTS


def _elements(config: ServedConfig, size: int) -> int:
    return sum(math.prod(size if dim < 0 else dim for dim in _own_dims(entry, config)) for entry in config.inputs)


def _own_dims(entry: TensorConfig, config: ServedConfig) -> tuple[int, ...]:
    return entry.dims[1:] if config.batched else entry.dims


def _inputs(config: ServedConfig, filling: Filling, number: int, *, batch: int = 1) -> tuple[Tensor, ...]:
    return tuple(_input(entry, config, filling, number, batch) for entry in config.inputs)


def _input(entry: TensorConfig, config: ServedConfig, filling: Filling, number: int, batch: int) -> Tensor:
    kind = filling.contents.get(entry.name, "text")
    items = (batch,) if config.batched else ()
    if entry.datatype == "UINT8" and kind != "text":
        file = tuple(content(kind, number, filling.parts))
        return Tensor(entry.name, entry.datatype, (*items, len(file)), file * batch)
    shape = (*items, *(filling.size if dim < 0 else dim for dim in _own_dims(entry, config)))
    value = content(kind, number, filling.parts) if entry.datatype == "BYTES" else _number(entry.datatype, number)
    return Tensor(entry.name, entry.datatype, shape, (value,) * math.prod(shape))


def _number(datatype: str, number: int) -> Value:
    if datatype == "BOOL":
        return number % 2 == 1
    return float(number) if datatype in FLOATING else number
