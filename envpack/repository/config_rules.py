"""What a server refuses of a configuration, or ends because of it; a Triton 24.10 server decided each case."""

from __future__ import annotations

import math
import os
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from envpack.repository.config import DeclaredTensor, ModelConfig
from envpack.repository.folders import backend_of, file_in, is_too_long, version_folders
from envpack.support.bounded_reading import opened
from envpack.support.text import counted

_ON_CPU = "FORCE_CPU_ONLY_INPUT_TENSORS"
_IMAGE_DIMS = 3  # of an input with a format
_KINDS = {2: "KIND_CPU", 3: "KIND_MODEL"}  # that take no GPUs
_DELAY = 1  # of a queue policy's timeout_action
_CORRID = 3  # of a control's kind
_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRID_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
_PYTHON = "libtriton_python.so"
_COUNT_TYPES = ("TYPE_INT32", "TYPE_FP32")
_TAG = re.compile(r"(?:[A-Za-z0-9]\w*)?", re.ASCII)  # a server puts "_" in front, and Prometheus reserves "__"

# Fields by message, and the first release whose schema has them; an older server refuses a configuration with one.
# Servers of 23.04 to 24.10 refused and took them so, as far as there are servers before and after.
_SINCE = {
    "StrategyOldest.preserve_ordering": "23.08",
    "ModelSequenceBatching.iterative_sequence": "23.11",
    "State.use_growable_memory": "23.11",
    "State.use_same_buffer_for_input_output": "23.11",
    "ModelConfig.runtime": "24.01",
    "ModelInput.is_non_linear_format_io": "24.08",
    "ModelOutput.is_non_linear_format_io": "24.08",
    "ModelConfig.model_metrics": "24.11",
    "ModelEnsembling.max_inflight_requests": "25.11",
}


def later_fields(config: Any, release: str) -> Iterator[tuple[str, str]]:
    """What a release does not know of a configuration, which it then refuses as a whole, and what to do about it."""
    for field, value in config.ListFields():
        since = _SINCE.get(f"{config.DESCRIPTOR.name}.{field.name}", "")
        if since > release:
            what = f"Triton {release} does not know the field {field.name}, which came with {since}"
            yield what, f"remove it, or serve the model with Triton {since} or later"
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for message in (value,) if hasattr(value, "DESCRIPTOR") else value:
                yield from later_fields(message, release)


def config_faults(config: ModelConfig, folder: Path, *, is_complete: bool) -> Iterator[str]:
    """What keeps a model from being loaded, by its configuration, to which its code or its backend may add."""
    yield from _fixed_faults(config, folder)
    if not is_complete:
        return
    for kind, entries in (("input", config.input), ("output", config.output)):
        for entry in entries:
            if fault := _fault(entry, f"model {kind}", is_batched=config.max_batch_size > 0):
                yield fault
    yield from _batch_faults(config)


def _fault(entry: DeclaredTensor, kind: str, *, is_batched: bool) -> str:
    who = f"{kind} '{entry.name}'"
    shape = entry.reshape.shape
    reshapes = entry.HasField("reshape")
    variable, others = list(entry.dims).count(-1), list(shape).count(-1)
    faults = (
        (not entry.name, f"{kind} must specify 'name'"),
        (not entry.data_type, f"{who} must specify 'data_type'"),
        (not entry.dims, f"{who} must specify 'dims'"),
        (
            any(size < 1 and size != -1 for size in entry.dims),
            f"{who} dimension must be integer >= 1, or -1 to indicate a variable-size dimension",
        ),
        (
            reshapes and not shape and not is_batched,
            f"{who} cannot have empty reshape for non-batching model as scalar tensors are not supported",
        ),
        (
            any(size < 1 and size != -1 for size in shape),
            f"{who} reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension",
        ),
        (
            variable and others and variable != others,
            f"{who} has different number of variable-size dimensions for dims and reshape",
        ),
        (reshapes and _sizes(entry.dims) != _sizes(shape), f"{who} has different size for dims and reshape"),
        (getattr(entry, "format", 0) and len(entry.dims) != _IMAGE_DIMS, f"{who} has a format, which needs 3 dims"),
        (entry.is_shape_tensor, f"{who} has is_shape_tensor, which only TensorRT takes"),
        (entry.is_non_linear_format_io, f"{who} has is_non_linear_format_io, which only TensorRT takes"),
    )
    return next((text for is_wrong, text in faults if is_wrong), "")


def _sizes(dims: Iterable[int]) -> list[int]:
    """The numbers of elements before, between and behind the variable dimensions: a reshape keeps each of them."""
    sizes = [1]
    for dim in dims:
        if dim == -1:
            sizes.append(1)
        else:
            sizes[-1] *= dim
    return sizes


def _batch_faults(model: Any) -> Iterator[str]:
    inputs, outputs = ({tensor.name for tensor in tensors} for tensors in (model.input, model.output))
    for kind, entries in (("batch_input", model.batch_input), ("batch_output", model.batch_output)):
        for entry in entries:
            if len(entry.source_input) != 1:
                yield f"a {kind} has {len(entry.source_input)} names in source_input, and needs one"
            for name in set(entry.source_input) - inputs:
                yield f"a {kind} has the source_input {name!r}, which the model does not declare"
    for entry in model.batch_input:
        if data_type(entry) not in _COUNT_TYPES:
            yield f"a batch_input has the data_type {data_type(entry)}, and needs one of {', '.join(_COUNT_TYPES)}"
    targets = [name for entry in model.batch_output for name in entry.target_name]
    for name, count in Counter(targets).items():
        if count > 1 or name not in outputs:
            what = "more than one batch_output has" if name in outputs else "the model does not declare"
            yield f"{what} the target_name {name!r}"
    if not all(entry.target_name for entry in model.batch_output):
        yield "a batch_output has no target_name"


def _fixed_faults(model: Any, folder: Path) -> Iterator[str]:
    """What is wrong with a configuration whatever the model or its backend adds to it."""
    backend = backend_of(model, folder)
    if model.max_batch_size < 0:
        yield "'max_batch_size' must be non-negative value"
    for output in model.output:
        name = output.label_filename
        if name and (is_too_long(name) or not file_in(folder, name).is_file()):
            yield f"the output {output.name!r} has the label_filename {name!r}, which is no file of the model"
    for tag in model.metric_tags:
        if not _TAG.fullmatch(tag):
            what = "which ends the server: it may have letters and digits, and _ behind the first"
            yield f"metric_tags has the key {tag!r}, {what}"
    yield from _group_faults(model.instance_group, backend)
    if backend.startswith("python"):
        yield from _python_faults(model, backend, folder)
    if model.response_cache.enable and model.model_transaction_policy.decoupled:
        yield "response_cache is enabled, and a decoupled model cannot have one"
    if model.HasField("dynamic_batching"):
        yield from _size_faults(model.dynamic_batching.preferred_batch_size, model.max_batch_size)
        yield from _priority_faults(model.dynamic_batching)
    if model.HasField("sequence_batching"):
        yield from _sequence_faults(model.sequence_batching, model.max_batch_size, folder)


def _group_faults(groups: Sequence[Any], backend: str) -> Iterator[str]:
    for group in groups:
        if group.gpus and group.kind in _KINDS:
            yield f"an instance_group has {_KINDS[group.kind]} and gpus"
        if group.profile and backend != "tensorrt":
            yield "an instance_group has a profile, which only TensorRT takes"
    if groups and all(group.passive for group in groups):
        yield "each instance_group is passive, and the first request ends the server"


def _python_faults(config: ModelConfig, backend: str, folder: Path) -> Iterator[str]:
    on_cpu = config.parameters[_ON_CPU].string_value if _ON_CPU in config.parameters else "yes"
    if on_cpu not in ("yes", "no"):
        yield f"the parameter {_ON_CPU} is {on_cpu!r}, and must be 'yes' or 'no'"
    runtime = os.path.normpath(config.runtime or _PYTHON)
    if backend == "python" and runtime != _PYTHON:
        # A library may be one of the model's own; model.py is that of a backend which is written in Python.
        places = () if runtime == "model.py" else (folder, *version_folders(folder))
        if is_too_long(runtime) or not any(file_in(place, runtime).exists() for place in places):
            yield f"the runtime {runtime!r} is neither a file of the model nor that of the backend python, {_PYTHON}"


def _size_faults(preferred: Sequence[int], most: int) -> Iterator[str]:
    for size in preferred:
        if not 1 <= size <= most:
            yield f"preferred_batch_size is {size}, and max_batch_size is {most}"


def _priority_faults(batching: Any) -> Iterator[str]:
    levels, policies = batching.priority_levels, batching.priority_queue_policy
    if levels:
        if not 1 <= batching.default_priority_level <= levels:
            yield f"default_priority_level is {batching.default_priority_level}, and must be from 1 to {levels}"
        for level in policies:
            if not 1 <= level <= levels:
                yield f"priority_queue_policy has the level {level}, and priority_levels is {levels}"
    if not batching.preserve_ordering:
        return
    if levels > 1:
        yield "dynamic_batching has priority_levels, and preserve_ordering excludes them"
    for policy in (batching.default_queue_policy, *policies.values()):
        if policy.timeout_action == _DELAY and policy.default_timeout_microseconds:
            yield "dynamic_batching has a queue policy with timeout_action: DELAY, and preserve_ordering excludes it"


def _sequence_faults(batching: Any, most: int, folder: Path) -> Iterator[str]:
    yield from _size_faults(batching.oldest.preferred_batch_size, most)
    if not 0 <= batching.direct.minimum_slot_utilization <= 1:
        yield "minimum_slot_utilization is not in 0 to 1"
    yield from _control_faults(batching.control_input)
    for state in batching.state:
        yield from _state_faults(state, folder / "initial_state")


def _control_faults(inputs: Any) -> Iterator[str]:
    names: set[str] = set()
    kinds: set[int] = set()
    for tensor in inputs:
        if not tensor.name:
            yield "a control_input has no name"
        elif tensor.name in names:
            yield f"sequence_batching has two of the control_input {tensor.name!r}"
        names.add(tensor.name)
        for control in tensor.control:
            kind = control.DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number[control.kind].name
            if control.kind in kinds:
                yield f"sequence_batching has two controls of {kind}"
            kinds.add(control.kind)
            values = [getattr(control, field) for field in _VALUES if getattr(control, field)]
            if control.kind != _CORRID and [len(pair) for pair in values] != [2]:
                yield f"{kind} needs two values in one of {', '.join(_VALUES)}"
            elif control.kind == _CORRID and (values or data_type(control) not in _CORRID_TYPES):
                yield f"{kind} needs one of the types {', '.join(_CORRID_TYPES)}, and no values"


def _state_faults(state: Any, folder: Path) -> Iterator[str]:
    who = f"the initial_state of {state.input_name!r}"
    if len(state.initial_state) > 1:
        yield f"{who} is written {len(state.initial_state)} times"
    for initial in state.initial_state:
        if not initial.name:
            yield f"{who} has no name"
        if initial.data_type != state.data_type or not agree(initial.dims, state.dims):
            yield f"{who} has another data_type or other dims than the state"
        if -1 in initial.dims:
            yield f"{who} has variable dims"
        if initial.WhichOneof("state_data") is None:
            yield f"{who} has no data: zero_data or data_file"
        elif initial.data_file and (is_too_long(initial.data_file) or not file_in(folder, initial.data_file).is_file()):
            yield f"{who} reads initial_state/{initial.data_file}, which does not exist"


def data_type(entry: Any) -> str:
    """The ``data_type`` of an input, output or state, for example ``"TYPE_FP32"``."""
    name: str = entry.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[entry.data_type].name
    return name


def kserve_type(data_type: str) -> str:
    """KServe's name of a type of a configuration: ``"FP32"``, ``"BYTES"``."""
    return "BYTES" if data_type == _STRING else data_type.removeprefix("TYPE_")


def datatype_of(entry: Any) -> str:
    """KServe's name of the type of an input or output."""
    return kserve_type(data_type(entry))


def fits(shape: Sequence[int], dims: Sequence[int]) -> bool:
    return len(shape) == len(dims) and all(want in (-1, have) for want, have in zip(dims, shape, strict=True))


def agree(first: Sequence[int], second: Sequence[int]) -> bool:
    return len(first) == len(second) and all(a == b or -1 in (a, b) for a, b in zip(first, second, strict=True))


_STRING = "TYPE_STRING"
# Bytes of an element, by KServe's names.
WIDTHS = {
    **dict.fromkeys(("BOOL", "UINT8", "INT8"), 1),
    **dict.fromkeys(("UINT16", "INT16", "FP16", "BF16"), 2),
    **dict.fromkeys(("UINT32", "INT32", "FP32"), 4),
    **dict.fromkeys(("UINT64", "INT64", "FP64"), 8),
}
_MOST_STRINGS = 1 << 20  # that are counted


def warmup_faults(config: ModelConfig, folder: Path, *, is_complete: bool) -> Iterator[str]:
    """What is wrong with the warm-ups of a model; their inputs only count if nothing adds to its configuration.

    A server skips a warm-up without batch_size, and hands on inputs that the model does not declare.
    """
    model: Any = config
    for warmup in model.model_warmup:
        if warmup.batch_size:
            where = f"the warm-up {warmup.name!r}"
            yield from (f"{where} {fault}" for fault in (_warmup_input_faults(warmup, model) if is_complete else ()))
            yield from (f"{where} {fault}" for fault in _warmup_data_faults(warmup, folder / "warmup"))


def _warmup_input_faults(warmup: Any, model: Any) -> Iterator[str]:
    if warmup.batch_size > max(model.max_batch_size, 1):
        yield f"has batch_size: {warmup.batch_size}, and max_batch_size is {model.max_batch_size}"
    given = [entry for entry in model.input if entry.name in warmup.inputs]
    needed = [entry.name for entry in model.input if not entry.optional]
    if len(given) < len(needed):  # a server counts them, and does not compare their names
        yield from (f"lacks the input {name!r}" for name in needed if name not in warmup.inputs)
    for entry in given:
        name, value = entry.name, warmup.inputs[entry.name]
        if value.data_type != entry.data_type:
            yield f"has another data_type for the input {name!r} than the model declares"
        if -1 not in value.dims and not fits(value.dims, entry.dims):
            yield f"has dims: {list(value.dims)} for the input {name!r}, and the model declares {list(entry.dims)}"
    if model.max_batch_size and not warmup.inputs:  # a server may wait for ever, or end
        yield f"has no input, and so no batch dimension, and max_batch_size is {model.max_batch_size}"


def _warmup_data_faults(warmup: Any, folder: Path) -> Iterator[str]:
    for name, value in warmup.inputs.items():
        if -1 in value.dims:
            yield f"leaves dims of the input {name!r} variable, and needs the size of each"
        elif value.WhichOneof("input_data_type") is None:
            yield f"has no data for the input {name!r}: zero_data, random_data or input_data_file"
        elif value.input_data_file and (fault := _file_fault(value, folder)):
            yield f"reads warmup/{value.input_data_file}, which {fault}"


def _file_fault(value: Any, folder: Path) -> str:
    name = value.input_data_file
    if is_too_long(name) or not (file := file_in(folder, name)).is_file():
        return "does not exist"
    kind = data_type(value)
    elements = math.prod(value.dims)
    tensor = f"{kind} {list(value.dims)} needs"
    if kind == _STRING:
        if elements > _MOST_STRINGS or _holds_strings(file, elements):
            return ""
        return f"is not what {tensor}: {counted(elements, 'string')}, each behind its length in 4 bytes"
    size, needed = file.stat().st_size, elements * WIDTHS.get(datatype_of(value), 0)
    return f"has {size} bytes, and {tensor} {needed}" if size < needed else ""


def _holds_strings(file: Path, count: int) -> bool:
    size, at = file.stat().st_size, 0
    with opened(file) as content:
        for _ in range(count):
            content.seek(at)
            length = content.read(4)
            if len(length) < 4:
                return False
            at += 4 + int(struct.unpack("<I", length)[0])
    return at == size
