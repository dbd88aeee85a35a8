"""What is found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.preflight import Mismatch
from envpack.support.errors import EnvpackError

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or may be.

    Attributes:
        kind: slug of its entry in ``docs/reference/errors.md``.
        severity: ``"error"`` if a server will not serve it as it is, ``"warning"`` if that depends on how it is served.
        where: file or folder.
        what: one sentence without a full stop.
        fix: what to do about it.
    """

    kind: str
    severity: Severity
    where: Path
    what: str
    fix: str


def fault(kind: str, where: Path, what: str, fix: str) -> Finding:
    """Something that no server will serve."""
    return Finding(kind, "error", where, what, fix)


def caution(kind: str, where: Path, what: str, fix: str) -> Finding:
    """Something that some servers will not serve."""
    return Finding(kind, "warning", where, what, fix)


def finding_of_error(error: EnvpackError, where: Path) -> Finding:
    """An error as it would be raised by a command; ``where`` if it does not say."""
    return Finding(error.kind, "error", Path(error.where) if error.where else where, error.message, error.hint)


def finding_of_mismatch(mismatch: Mismatch, where: Path) -> Finding:
    """Two things that do not go together."""
    return Finding(mismatch.kind, "error", where, mismatch.reason, mismatch.fix)
