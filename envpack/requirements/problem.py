"""Where in a requirements file something is wrong, and how that is told without telling secrets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from envpack.support.errors import InputError
from envpack.support.redaction import redact

_LONGEST = 120


@dataclass(frozen=True)
class Location:
    """A place in a file.

    Attributes:
        path: the file.
        line: counted from 1, 0 if the format does not say.
    """

    path: Path
    line: int = 0

    def at(self, line: int) -> Location:
        """Another line of the same file."""
        return replace(self, line=line)

    def error(self, message: str, *, hint: str) -> InputError:
        """The error to raise for what is wrong at this place."""
        where = f"{self.path}:{self.line}" if self.line else str(self.path)
        return InputError(message, kind="bad-requirements", where=where, hint=hint)


def shown(text: str) -> str:
    """A user's text for an error: in quotes, on one line, not too long, without passwords and tokens."""
    text = redact(text)
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
