"""Loads what an ensemble consists of, as a server does before it loads the ensemble."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from envpack.local.ensemble import LocalEnsemble
from envpack.local.load_checks import check_circles, check_ensemble
from envpack.local.local_model import LocalModel, ModelSource
from envpack.local.model_process import ModelFailed
from envpack.repository import Model, flow_faults

if TYPE_CHECKING:
    from envpack.local.remote import RemoteModel

Runnable: TypeAlias = "LocalModel | LocalEnsemble | RemoteModel"
_What = Callable[[str], ModelSource | Model | None]


def load_steps(config: Any, what: _What, load: Callable[[str], Runnable], *, has_server: bool) -> None:
    """Load the models of an ensemble, and check that they fit."""
    for fault in flow_faults(config):
        raise ModelFailed(f"ensemble '{config.name}': {fault}")
    steps = config.ensemble_scheduling.step
    check_circles(config.name, lambda name: _steps(what(name)))
    names = list(dict.fromkeys(step.model_name for step in steps))
    missing = [name for name in names if not has_server and what(name) is None]
    if missing:
        text = f"ensemble {config.name} contains models that are not available or ambiguous: {', '.join(missing)}"
        raise ModelFailed(text)
    models = {name: _loaded(config.name, name, what, load) for name in names}
    for step in steps:
        if not models[step.model_name].serves(step.model_version):
            text = f"depends on '{step.model_name}' whose required version {step.model_version} is not loaded."
            raise ModelFailed(f"ensemble '{config.name}' {text}")
    local = {name: model.config for name, model in models.items() if isinstance(model, LocalModel | LocalEnsemble)}
    check_ensemble(config, local)


def _steps(found: ModelSource | Model | None) -> list[str]:
    return [step.model_name for step in found.config.ensemble_scheduling.step] if isinstance(found, Model) else []


def _loaded(ensemble: str, name: str, what: _What, load: Callable[[str], Runnable]) -> Runnable:
    try:
        return load(name)
    except ModelFailed as error:
        found = what(name)
        version = found.version if isinstance(found, ModelSource) else "1"
        raise ModelFailed(
            f"ensemble '{ensemble}' depends on '{name}' which has no loaded version. Model '{name}' loading failed "
            f"with error: version {version} is at UNAVAILABLE state: {error.status}: {error.text};"
        ) from error
