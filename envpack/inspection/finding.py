"""Findings of an inspection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.preflight import Mismatch
from envpack.support.errors import EnvpackError

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """A problem, or a possible problem.

    Attributes:
        kind: slug of its entry in ``docs/reference/errors.md``.
        severity: ``"error"`` if no server can serve it, ``"warning"`` if that depends on the server.
        where: the file or folder.
        what: one sentence without a full stop.
        fix: how to resolve it.
    """

    kind: str
    severity: Severity
    where: Path
    what: str
    fix: str


def fault(kind: str, where: Path, what: str, fix: str) -> Finding:
    """An error: no server can serve it."""
    return Finding(kind, "error", where, what, fix)


def caution(kind: str, where: Path, what: str, fix: str) -> Finding:
    """A warning: some servers cannot serve it."""
    return Finding(kind, "warning", where, what, fix)


def finding_of_error(error: EnvpackError, where: Path) -> Finding:
    """The finding for an error that a command would raise; ``where`` applies if the error has no path."""
    return Finding(error.kind, "error", Path(error.where) if error.where else where, error.message, error.hint)


def finding_of_mismatch(mismatch: Mismatch, where: Path) -> Finding:
    """The finding for an incompatibility."""
    return Finding(mismatch.kind, "error", where, mismatch.reason, mismatch.fix)
