"""A model's configuration as a server completes it, and as it hands it to the model: as JSON.

What is done here was read off a Triton 24.10 server without a GPU.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from envpack.repository.config import ModelConfig

_DEFAULT_IDLE = 1_000_000  # microseconds after which a server forgets a sequence
# 64-bit numbers that the server's JSON has as text.
_TEXT_NUMBERS = {
    ("inference.ModelInstanceGroup.SecondaryDevice", "device_id"),
    ("inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape", "dim"),
    ("inference.ModelSequenceBatching.InitialState", "dims"),
}
_IO = ("max_batch_size", "input", "output")
_SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")


def complete_config(config: ModelConfig, name: str) -> Any:
    """A configuration with the server's defaults; the argument is not changed."""
    completed: Any = copy.deepcopy(config)
    completed.name = name
    if not completed.HasField("version_policy"):
        completed.version_policy.latest.num_versions = 1
    for memory in ("input_pinned_memory", "output_pinned_memory"):
        if not completed.optimization.HasField(memory):
            getattr(completed.optimization, memory).enable = True
    _complete_scheduler(completed)
    if not completed.HasField("ensemble_scheduling"):
        completed.backend = completed.backend or "python"
        completed.default_model_filename = completed.default_model_filename or "model.py"
        _complete_groups(completed, name)
    return completed


def _complete_scheduler(config: Any) -> None:
    if (
        config.HasField("dynamic_batching")
        and config.max_batch_size
        and not config.dynamic_batching.preferred_batch_size
    ):
        config.dynamic_batching.preferred_batch_size.append(config.max_batch_size)
    if config.HasField("sequence_batching") and not config.sequence_batching.max_sequence_idle_microseconds:
        config.sequence_batching.max_sequence_idle_microseconds = _DEFAULT_IDLE


def _complete_groups(config: Any, name: str) -> None:
    """Without a GPU, instances whose kind is open run on the CPU."""
    if not config.instance_group:
        config.instance_group.add(name=name, count=1)
    for number, group in enumerate(config.instance_group):
        group.name = group.name or f"{name}_{number}"
        group.count = group.count or 1
        if group.kind == type(group).Kind.Value("KIND_AUTO"):
            group.kind = type(group).Kind.Value("KIND_CPU")


def completion_fault(answer: str) -> str:
    policy = json.loads(answer).get("model_transaction_policy", {})
    decoupled = policy.get("decoupled", False) if isinstance(policy, dict) else False
    what = f"auto_complete_config sets decoupled to the number {decoupled}, on which servers end: set True or False"
    return what if isinstance(decoupled, (int, float)) and not isinstance(decoupled, bool) else ""


def merge_completion(config: Any, answer: str) -> tuple[Any, str]:
    """A configuration as the model completed it, and the JSON that the model is initialized with, misfits included."""
    from google.protobuf import json_format

    merged, document = copy.deepcopy(config), json.loads(answer)
    for tensors in (document.get("input"), document.get("output")):
        for tensor in tensors if isinstance(tensors, list) else ():
            if isinstance(tensor, dict) and isinstance(tensor.get("dims"), int):
                tensor["dims"] = [tensor["dims"]]  # as the server does
    try:
        proposed = json_format.ParseDict(document, type(config)())
    except json_format.ParseError:
        return merged, _compact(document)
    for field in _IO:
        merged.ClearField(field)
    merged.max_batch_size = proposed.max_batch_size
    merged.input.extend(proposed.input)
    merged.output.extend(proposed.output)
    if not any(merged.HasField(scheduler) for scheduler in _SCHEDULERS):
        for scheduler in _SCHEDULERS:
            if proposed.HasField(scheduler):
                getattr(merged, scheduler).CopyFrom(getattr(proposed, scheduler))
    if proposed.HasField("model_transaction_policy"):
        merged.model_transaction_policy.CopyFrom(proposed.model_transaction_policy)
    merged = complete_config(merged, merged.name)
    return merged, config_json(merged)


def config_json(config: Any) -> str:
    """The JSON of a configuration, as a server writes it: all fields in the order of the schema."""
    return _compact(_json(config))


def _compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _json(message: Any) -> dict[str, Any]:
    return dict(_fields(message))


def _fields(message: Any) -> Iterator[tuple[str, Any]]:
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            kind = field.message_type.fields_by_name["value"]
            yield field.name, {str(key): _value(kind, value[key]) for key in value}
        elif hasattr(value, "extend"):  # a repeated field; how protobuf says that depends on its version
            yield field.name, [_value(field, item) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            yield field.name, _value(field, value)


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _json(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if (field.containing_type.full_name, field.name) in _TEXT_NUMBERS:
        return str(value)
    return value


def instance_arguments(config: Any, model_config: str, folder: str, version: str) -> dict[str, str]:
    """What ``initialize()`` of the first instance is given."""
    group = config.instance_group[0]
    kind = type(group).Kind.Name(group.kind).removeprefix("KIND_")
    return {
        "model_config": model_config,
        "model_instance_kind": kind,
        "model_instance_name": f"{group.name}_0",
        "model_instance_device_id": str(group.gpus[0]) if group.gpus else "0",
        "model_repository": folder,
        "model_version": version,
        "model_name": config.name,
    }
