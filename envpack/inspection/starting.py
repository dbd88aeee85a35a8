"""Findings on how a model's instances start."""

from __future__ import annotations

from collections.abc import Iterator

from envpack.repository import CONFIG_NAME, PYTHON_BACKEND, STUB_NAME, Model, configured_start
from envpack.support.findings import Finding, caution


def starts_warm(model: Model) -> bool:
    """Whether a model's configuration names the warm start."""
    return not model.is_ensemble and configured_start(model.config) == "warm"


def start_findings(model: Model) -> Iterator[Finding]:
    """A warning if a model names the warm start, and the server's own stub may be the one that runs it."""
    if starts_warm(model) and model.backend == PYTHON_BACKEND and not (model.folder / STUB_NAME).exists():
        yield caution(
            "start-ignored",
            model.folder / CONFIG_NAME,
            "ENVPACK_START is warm, but the model has no stub of its own, and the release's stub starts it cold",
            f"give it envpack's stub: `envpack build {model.folder.name} --start warm`",
        )
