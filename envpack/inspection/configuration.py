"""Inspects what configurations declare, how ensembles fit their models, and how instances start."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envpack.repository.code import completes_itself, may_be_completed
from envpack.repository.config import DeclaredTensor, ModelConfig, Step, unfilled_parameters
from envpack.repository.config_editor import STUB_PARAMETERS
from envpack.repository.config_rules import agree, config_faults, data_type, later_fields, warmup_faults
from envpack.repository.folders import version_folders
from envpack.repository.model import Model
from envpack.repository.placement import PYTHON_BACKEND
from envpack.settings.releases import Release
from envpack.support.errors import Finding, caution, fault
from envpack.support.placed_files import CONFIG_NAME, STUB_NAME
from envpack.support.text import enumerated

_WARMUP_FIX = "correct model_warmup, or the file"
_MOST_SHOWN = 3  # parameters in one finding
_OF_INSTANCES = {"instance_group", "model_warmup", "optimization"}


def declaration_findings(model: Model) -> Iterator[Finding]:
    """What a server accepts, and ignores: a tensor declared again, a parameter that is not filled in, and state."""
    for kind, tensors in (("input", model.config.input), ("output", model.config.output)):
        for name, count in Counter(tensor.name for tensor in tensors).items():
            if count > 1:
                what = f"the {kind} {name!r} is declared {count} times, and servers take only one of them"
                yield caution("declared-twice", model.folder / CONFIG_NAME, what, f"give each {kind} its own name")
    if unfilled := unfilled_parameters(model.config):
        shown = ", ".join(f"{name} is {value}" for name, value in list(unfilled.items())[:_MOST_SHOWN])
        more = f", and {len(unfilled) - _MOST_SHOWN} more are so" if len(unfilled) > _MOST_SHOWN else ""
        what = f"parameters have words of a template as values, which no server fills in: {shown}{more}"
        yield caution("template-unfilled", model.folder / CONFIG_NAME, what, "write the values, unless the model does")
    for key in sorted(set(model.config.parameters) - STUB_PARAMETERS.keys()) if model.has_stub else ():
        if key.startswith("ENVPACK_"):
            what, known = f"no stub reads the parameter {key}", enumerated([*STUB_PARAMETERS])
            yield caution("settings-unused", model.folder / CONFIG_NAME, what, f"correct its name: known are {known}")
    config: Any = model.config
    if config.sequence_batching.state and not model.is_foreign:
        names = ", ".join(state.input_name for state in config.sequence_batching.state)
        what = (
            f"Triton's Python backend updates no state of sequence_batching: {names} is the initial one in each request"
        )
        fix = "keep the state in the model, by request.correlation_id()"
        yield caution("state-ignored", model.folder / CONFIG_NAME, what, fix)


def loading_findings(model: Model, release: Release) -> Iterator[Finding]:
    """What servers refuse of a configuration, without what the model's code or its backend may complete."""
    where = model.folder / CONFIG_NAME
    for what, fix in later_fields(model.config, release.name):
        yield fault("bad-config", where, what, fix)
    is_complete = not (model.is_foreign or completes_itself(model.folder))
    for text in dict.fromkeys(config_faults(model.config, model.folder, is_complete=is_complete)):
        yield fault("bad-config", where, text, "correct config.pbtxt")
    for text in dict.fromkeys(warmup_faults(model.config, model.folder, is_complete=is_complete)):
        yield fault("bad-config", where, text, _WARMUP_FIX)
    if version_folders(model.folder) and not model.served_versions():
        what = "version_policy allows none of the versions that are there"
        yield fault("version-missing", where, what, "name a version that is there, or add its folder")


def ensemble_findings(model: Model, models: Mapping[str, Model]) -> Iterator[Finding]:
    """What every server refuses of an ensemble."""
    where = model.folder / CONFIG_NAME
    if model.config.platform != "ensemble" or model.config.backend:
        what = 'an ensemble must have platform: "ensemble" and no backend'
        yield fault("ensemble-mismatch", where, what, 'write platform: "ensemble" in place of backend')
    config: Any = model.config
    for field in sorted(_OF_INSTANCES.intersection(field.name for field, _ in config.ListFields())):
        what = f"an ensemble has no instances, so it must not have {field}"
        yield fault("ensemble-mismatch", where, what, f"remove {field}")
    for text in _flow_faults(model.config):
        yield fault("ensemble-mismatch", where, text, "correct the steps and their maps")
    for text in _version_faults(model, models):
        yield fault("ensemble-mismatch", where, text, "write model_version: -1, which stands for the newest")
    fitting = {name: _named(models[name]) for name in model.steps if name in models and _is_complete(models[name])}
    for text in dict.fromkeys(fit_faults(_named(model), fitting)):
        yield fault("ensemble-mismatch", where, text, "compare the maps and types in config.pbtxt")


def _version_faults(model: Model, models: Mapping[str, Model]) -> Iterator[str]:
    for number, step in enumerate(model.config.ensemble_scheduling.step):
        used, version = models.get(step.model_name), step.model_version
        if version == 0:
            yield f"step {number} has no model_version, so it names version 0 of {step.model_name}"
        elif version < -1:
            yield f"step {number} names version {version} of {step.model_name}, and no version has such a number"
        elif version > 0 and used and version_folders(used.folder) and version not in used.served_versions():
            yield f"step {number} names version {version} of {step.model_name}, which a server does not load"


def _named(model: Model) -> ModelConfig:
    config = copy.deepcopy(model.config)
    config.name = model.name
    return config


def _is_complete(model: Model) -> bool:
    """Whether the configuration lists all inputs and outputs, or nothing can add others."""
    if model.config.input and model.config.output:
        return not completes_itself(model.folder)
    return not (model.is_foreign or may_be_completed(model.folder, model.config))


def _flow_faults(ensemble: ModelConfig) -> Iterator[str]:
    steps = ensemble.ensemble_scheduling.step
    if not steps:
        yield "the ensemble has no step in ensemble_scheduling"
        return
    incomplete = False
    for number, step in enumerate(steps):
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                incomplete = True
                yield f"step {number} has no {field}"
    if not incomplete:
        yield from _tensor_faults(ensemble, steps)


def _tensor_faults(ensemble: ModelConfig, steps: Sequence[Step]) -> Iterator[str]:
    inputs = {entry.name for entry in ensemble.input}
    outputs = {entry.name for entry in ensemble.output}
    written = Counter(tensor for step in steps for tensor in step.output_map.values())
    read = {tensor for step in steps for tensor in step.input_map.values()}
    for tensor, count in written.items():
        if count > 1:
            yield f"{count} steps write the tensor {tensor!r}"
        if tensor not in read | outputs:
            yield f"no step reads the tensor {tensor!r}, and it is no output of the ensemble"
    for step in steps:
        for own, tensor in step.input_map.items():
            if tensor not in written and tensor not in inputs:
                yield f"the input {own!r} of {step.model_name} is the tensor {tensor!r}, which no step writes"
    for name in sorted(inputs - read):
        yield f"no step reads the input {name!r} of the ensemble"
    for name in sorted(outputs - written.keys() - (inputs & read)):  # an input may be an output, too
        yield f"no step writes the output {name!r} of the ensemble"
    if not read - inputs - written.keys():
        yield from _circle_faults(inputs, steps)


def _circle_faults(inputs: set[str], steps: Sequence[Step]) -> Iterator[str]:
    available, waiting = set(inputs), list(steps)
    while ready := [step for step in waiting if available.issuperset(step.input_map.values())]:
        waiting = [step for step in waiting if not available.issuperset(step.input_map.values())]
        available |= {tensor for step in ready for tensor in step.output_map.values()}
    if waiting:
        yield f"the steps {', '.join(step.model_name for step in waiting)} wait for each other's tensors"


def fit_faults(ensemble: ModelConfig, models: Mapping[str, ModelConfig]) -> Iterator[str]:
    """What keeps an ensemble from being loaded with the models that its steps name, in the words of the server."""
    known: dict[str, tuple[DeclaredTensor, ModelConfig]]
    known = {entry.name: (_reshaped(entry), ensemble) for entry in (*ensemble.output, *ensemble.input)}
    for step in ensemble.ensemble_scheduling.step:
        model = models.get(step.model_name)
        if model is None:
            continue
        if 0 < model.max_batch_size < ensemble.max_batch_size:
            yield (
                f"ensemble {ensemble.name} allows maximum batch size {ensemble.max_batch_size}, but it contains model "
                f"{model.name} which only allows maximum batch size to be {model.max_batch_size}"
            )
        yield from _name_faults(ensemble, step, model)
        for entries, names in ((model.input, step.input_map), (model.output, step.output_map)):
            for entry in entries:
                if entry.name in names:
                    tensor = names[entry.name]
                    where = f"in ensemble {ensemble.name}, ensemble tensor {tensor}"
                    yield from _type_faults(where, *known.setdefault(tensor, (entry, model)), entry, model)


def _name_faults(ensemble: ModelConfig, step: Step, model: ModelConfig) -> Iterator[str]:
    inputs = {entry.name: entry for entry in model.input}
    outputs = {entry.name for entry in model.output}
    where = f"in ensemble {ensemble.name}, "
    for own, tensor in step.input_map.items():
        if own not in inputs:
            yield f"{where}ensemble tensor {tensor} is mapping to non-existing input {own} in model {model.name}"
    for own, entry in inputs.items():
        if own not in step.input_map and not entry.optional:
            yield f"{where}input {own} in model {model.name} is not mapped to any ensemble tensors"
    for own, tensor in step.output_map.items():
        if own not in outputs:
            yield f"{where}ensemble tensor {tensor} is mapped from non-existing output {own} in model {model.name}"


def _type_faults(
    where: str, other: DeclaredTensor, owner: ModelConfig, entry: DeclaredTensor, model: ModelConfig
) -> Iterator[str]:
    if other.data_type != entry.data_type:
        yield (
            f"{where}: inconsistent data type: {data_type(other)} is inferred from model {owner.name} while "
            f"{data_type(entry)} is inferred from model {model.name}"
        )
    first, second = _full_dims(other, owner), _full_dims(entry, model)
    if not agree(other.dims, entry.dims) and not agree(first, second):
        yield (
            f"{where}: inconsistent shape: {_shown(first)} is inferred from model {owner.name} while "
            f"{_shown(second)} is inferred from model {model.name}"
        )


def _reshaped(entry: DeclaredTensor) -> DeclaredTensor:
    """A tensor of an ensemble as its steps get it; that of a model has the shape that requests have."""
    if not entry.HasField("reshape"):
        return entry
    found = copy.deepcopy(entry)
    found.dims[:] = entry.reshape.shape
    return found


def _full_dims(entry: DeclaredTensor, model: ModelConfig) -> list[int]:
    return [*([-1] if model.max_batch_size > 0 else []), *entry.dims]


def _shown(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"


def starts_warm(model: Model) -> bool:
    return not model.is_ensemble and model.start == "warm"


def start_findings(model: Model) -> Iterator[Finding]:
    """A warning if a model names the warm start, and the server's own stub may be the one that runs it."""
    if starts_warm(model) and model.backend == PYTHON_BACKEND and not (model.folder / STUB_NAME).exists():
        what = "ENVPACK_START is warm, but the model has no stub of its own, and the release's stub starts it cold"
        fix = f"give it envpack's stub: `envpack build {model.folder.name} --start warm`"
        yield caution("start-ignored", model.folder / CONFIG_NAME, what, fix)
