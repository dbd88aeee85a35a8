"""Inspects what configurations declare, how ensembles fit their models, and how instances start."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from envpack.repository import (
    CONFIG_NAME,
    PYTHON_BACKEND,
    STUB_NAME,
    Model,
    config_faults,
    fit_faults,
    fixed_faults,
    flow_faults,
    later_fields,
    version_folders,
    warmup_data_faults,
    warmup_faults,
)
from envpack.settings import Release
from envpack.support.errors import Finding, caution, fault

_WARMUP_FIX = "correct model_warmup, or the file"


def declaration_findings(model: Model) -> Iterator[Finding]:
    """Inputs and outputs that are declared more than once: a server loads such a model, and takes one of them."""
    for kind, tensors in (("input", model.config.input), ("output", model.config.output)):
        for name, count in Counter(tensor.name for tensor in tensors).items():
            if count > 1:
                what = f"the {kind} {name!r} is declared {count} times, and servers take only one of them"
                yield caution("declared-twice", model.folder / CONFIG_NAME, what, f"give each {kind} its own name")


def loading_findings(model: Model, release: Release) -> Iterator[Finding]:
    """What servers refuse of a configuration, without what the model's code or its backend may complete."""
    where = model.folder / CONFIG_NAME
    for what, fix in later_fields(model.config, release.name):
        yield fault("bad-config", where, what, fix)
    may_be_completed = model.is_foreign or model.completes_itself
    faults = [*fixed_faults(model.config, model.folder), *(() if may_be_completed else config_faults(model.config))]
    for text in dict.fromkeys(faults):
        yield fault("bad-config", where, text, "correct config.pbtxt")
    find_faults = warmup_data_faults if may_be_completed else warmup_faults
    for text in dict.fromkeys(find_faults(model.config, model.folder)):
        yield fault("bad-config", where, text, _WARMUP_FIX)
    if version_folders(model.folder) and not model.served_versions():
        what = "version_policy allows none of the versions that are there"
        yield fault("version-missing", where, what, "name a version that is there, or add its folder")


def ensemble_findings(model: Model, models: Mapping[str, Model]) -> Iterator[Finding]:
    """What every server refuses of an ensemble."""
    where = model.folder / CONFIG_NAME
    for text in flow_faults(model.config):
        yield fault("ensemble-mismatch", where, text, "correct the steps and their maps")
    for text in _version_faults(model, models):
        yield fault("ensemble-mismatch", where, text, "write model_version: -1, which stands for the newest")
    fitting = {name: _named(models[name]) for name in model.steps if name in models and _is_complete(models[name])}
    for text in dict.fromkeys(fit_faults(_named(model), fitting)):
        yield fault("ensemble-mismatch", where, text, "compare the maps and types in config.pbtxt")


def _version_faults(model: Model, models: Mapping[str, Model]) -> Iterator[str]:
    steps: Any = model.config.ensemble_scheduling.step
    for number, step in enumerate(steps):
        used, version = models.get(step.model_name), step.model_version
        if version == 0:
            yield f"step {number} has no model_version, so it names version 0 of {step.model_name}"
        elif version > 0 and used and version_folders(used.folder) and version not in used.served_versions():
            yield f"step {number} names version {version} of {step.model_name}, which a server does not load"


def _named(model: Model) -> Any:
    config: Any = copy.deepcopy(model.config)
    config.name = model.name
    return config


def _is_complete(model: Model) -> bool:
    """Whether the configuration lists all inputs and outputs; a server completes others from the model."""
    return bool(model.config.input and model.config.output) and not model.completes_itself


def starts_warm(model: Model) -> bool:
    """Whether a model's configuration names the warm start."""
    return not model.is_ensemble and model.start == "warm"


def start_findings(model: Model) -> Iterator[Finding]:
    """A warning if a model names the warm start, and the server's own stub may be the one that runs it."""
    if starts_warm(model) and model.backend == PYTHON_BACKEND and not (model.folder / STUB_NAME).exists():
        what = "ENVPACK_START is warm, but the model has no stub of its own, and the release's stub starts it cold"
        fix = f"give it envpack's stub: `envpack build {model.folder.name} --start warm`"
        yield caution("start-ignored", model.folder / CONFIG_NAME, what, fix)
