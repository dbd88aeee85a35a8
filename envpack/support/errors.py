"""The errors that envpack raises for users, and findings: what is wrong with files, as a value.

Each class has one exit code. Each ``kind`` is one way to fail and has an entry in ``docs/reference/errors.md``. The
message names the problem, ``where`` the file or line, and ``hint`` the solution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.support.redaction import redact


class EnvpackError(Exception):
    """Base of all expected failures. The command line shows one line, never a traceback.

    Secrets in addresses are removed from every part.

    Args:
        kind: slug of the entry in ``docs/reference/errors.md``.
        message: the problem, in one sentence without a full stop.
        hint: what the user can do; may be empty.
        where: file, ``file:line``, folder or address that the message is about; may be empty.
        details: full output of the program that failed, if the message is only a part of it; may be empty.
    """

    exit_code: int = 70

    def __init__(self, kind: str, message: str, hint: str = "", where: str = "", *, details: str = "") -> None:
        super().__init__(
            kind, redact(message), redact(hint), redact(where)
        )  # with which it is made again from a pickle
        self.message = redact(message)
        self.kind = kind
        self.where = redact(where)
        self.hint = redact(hint)
        self.details = redact(details)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{hint}"


class UsageError(EnvpackError):
    """The arguments of a command or an API call are invalid, or exclude each other."""

    exit_code = 2


class InputError(EnvpackError):
    """A file or folder of the user is invalid: configuration, requirements, model."""

    exit_code = 3


class EnvironmentBuildError(EnvpackError):
    """An execution environment could not be resolved, installed or packed."""

    exit_code = 4


class StubError(EnvpackError):
    """A stub could not be built, inspected or placed."""

    exit_code = 5


class StorageError(EnvpackError):
    """A file or folder cannot be read or written: the disk is full, a permission is missing, or it is another thing."""

    exit_code = 7


class ServerError(EnvpackError):
    """A server, container or cluster could not be found, started or stopped."""

    exit_code = 6


class ModelsError(EnvpackError):
    """Errors of models in a command that does its work for all of them or for none; kind and exit code are the first's.

    Attributes:
        errors: the errors by the names of the models.
        total: number of models of the command.
    """

    errors: Mapping[str, EnvpackError]
    total: int

    @classmethod
    def raise_any(cls, errors: Mapping[str, EnvpackError], total: int) -> None:
        """Raise the errors of models, if there are any; the error itself if it is that of all models."""
        if not errors:
            return
        first, *others = errors.values()
        if len(errors) == total and all(other is first for other in others):
            raise first
        count = f"{len(errors)} of {total} models: {', '.join(errors)}"
        error = cls(first.kind, f"nothing was changed because of {count}", first.hint, first.where)
        error.exit_code, error.errors, error.total = first.exit_code, dict(errors), total
        raise error


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
