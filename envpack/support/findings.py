"""What is wrong with files, as a value: an inspection reports all of it, a verification the first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.support.errors import EnvpackError

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """A problem, or a possible problem.

    Attributes:
        kind: slug of its entry in ``docs/reference/errors.md``.
        what: one sentence without a full stop.
        fix: how to resolve it.
        where: the file or folder; empty if ``what`` names it.
        severity: ``"error"`` if no server can serve it, ``"warning"`` if that depends on the server.
    """

    kind: str
    what: str
    fix: str
    where: Path = Path()
    severity: Severity = "error"


def fault(kind: str, where: Path, what: str, fix: str) -> Finding:
    """An error: no server can serve it."""
    return Finding(kind, what, fix, where)


def caution(kind: str, where: Path, what: str, fix: str) -> Finding:
    """A warning: some servers cannot serve it."""
    return Finding(kind, what, fix, where, "warning")


def finding_of_error(error: EnvpackError, where: Path) -> Finding:
    """The finding for an error that a command would raise; ``where`` applies if the error has no path."""
    return Finding(error.kind, error.message, error.hint, Path(error.where) if error.where else where)
