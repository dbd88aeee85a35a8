"""Everything envpack raises on purpose.

Each class stands for one exit code; each ``kind`` is one way to fail and the name of its entry in
``docs/reference/errors.md``. The message says what is wrong, ``where`` says in which file or line, and
``hint`` says what to do about it.
"""

from __future__ import annotations

from typing import ClassVar


class EnvpackError(Exception):
    """Base of all expected failures: shown as one clear line, never as a traceback.

    Args:
        message: what is wrong, one sentence without a full stop.
        kind: slug of the entry in ``docs/reference/errors.md``.
        where: file, ``file:line`` or folder that the message is about; may be empty.
        hint: what the user can do; may be empty.
        details: all that a program said about it, where the message gives only the gist; may be empty.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, kind: str, where: str = "", hint: str = "", details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.where = where
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{hint}"


class UsageError(EnvpackError):
    """The command line, or the arguments of an API call, make no sense together."""

    exit_code = 2


class InputError(EnvpackError):
    """A file or folder of the user is wrong: configuration, requirements, model."""

    exit_code = 3


class EnvironmentBuildError(EnvpackError):
    """An execution environment could not be solved, installed or packed."""

    exit_code = 4


class StubError(EnvpackError):
    """A stub could not be built, inspected or placed."""

    exit_code = 5


class ServerError(EnvpackError):
    """A server or container could not be found, started or stopped."""

    exit_code = 6
