"""What a server checks before it loads a model. The texts of errors are those of a Triton 24.10 server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envpack.local.model_process import ModelFailed
from envpack.repository import config_faults, fit_faults

_INVALID = "Invalid argument"


def check_config(config: Any) -> None:
    """Check a completed configuration."""
    for text in config_faults(config):
        raise ModelFailed(f"{text} for {config.name}", status=_INVALID)


def check_circles(name: str, steps_of: Callable[[str], Sequence[str]]) -> None:
    """Check that no ensemble runs itself."""

    def follow(path: tuple[str, ...]) -> None:
        for step in steps_of(path[-1]):
            if step in path:
                circle = f"{path[0]} -> ... -> {path[-1]} -> {step}"
                raise ModelFailed(f"circular dependency between ensembles: {circle}")
            follow((*path, step))

    follow((name,))


def check_ensemble(config: Any, models: Mapping[str, Any]) -> None:
    """Check that the steps of an ensemble fit the models that they name."""
    for text in fit_faults(config, models):
        raise ModelFailed(text)
