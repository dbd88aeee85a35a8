"""One verdict from those of several servers, each of which verified some models of one repository."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from envpack.verification.checks.server import check_repository
from envpack.verification.verdict import Check, ModelVerdict, Verdict

_WORST_FIRST = ("failed", "unchecked", "warning", "ok", "skipped")


def combine_verdicts(parts: Sequence[Verdict], *, folder: Path | None, seconds: float) -> Verdict:
    """Combine the verdicts on parts of a repository.

    Returns a verdict that is positive if and only if all are. A check of servers has the worst of its results.
    """
    models: dict[str, ModelVerdict] = {}
    for model in (model for part in parts for model in part.models):
        if model.name not in models or models[model.name].ok:
            models[model.name] = model
    checks = [
        *([check_repository(folder)] if folder else []),
        *_worst(check for part in parts for check in part.checks),
    ]
    return Verdict(
        ok=all(part.ok for part in parts) and all(check.ok for check in checks),
        repository=parts[0].repository,
        release=_joined(part.release for part in parts),
        server=_joined(part.server for part in parts),
        runtime=_joined(part.runtime for part in parts),
        image=_joined(part.image for part in parts),
        models=tuple(models.values()),
        checks=tuple(checks),
        leftovers=tuple(leftover for part in parts for leftover in part.leftovers),
        started=min(part.started for part in parts),
        seconds=seconds,
        verdict_seconds=max(part.verdict_seconds for part in parts),
    )


def _worst(checks: Iterable[Check]) -> list[Check]:
    """One check for each id: the first of the worst."""
    found: dict[str, Check] = {}
    for check in checks:
        before = found.get(check.id)
        if before is None or _WORST_FIRST.index(check.status) < _WORST_FIRST.index(before.status):
            found[check.id] = check
    return list(found.values())


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, texts)))
