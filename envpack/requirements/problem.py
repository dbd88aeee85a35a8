"""Where in a requirements file something is wrong, and how that is told without telling secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from envpack.errors import InputError

_LONGEST = 120
_SECRETS = (
    (re.compile(r"//[^/\s@]*@"), "//***@"),  # https://user:password@host
    (re.compile(r"/t/[^/\s]+/"), "/t/***/"),  # the tokens of conda servers
    (re.compile(r"([?&][^=&#\s]+)=[^&#\s]+"), r"\1=***"),  # signed URLs
)


@dataclass(frozen=True)
class Spot:
    """A place in a file.

    Attributes:
        path: the file.
        line: counted from 1, 0 if the format does not say.
    """

    path: Path
    line: int = 0

    def at(self, line: int) -> Spot:
        """Another line of the same file."""
        return replace(self, line=line)

    def error(self, message: str, *, hint: str) -> InputError:
        """The error to raise for what is wrong at this place."""
        where = f"{self.path}:{self.line}" if self.line else str(self.path)
        return InputError(message, kind="bad-requirements", where=where, hint=hint)


def shown(text: str) -> str:
    """A user's text for an error: in quotes, on one line, not too long, without passwords and tokens."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def has_secret(url: str) -> bool:
    """Whether a URL carries a user name, a password or a token of a conda server."""
    return any(pattern.search(url) for pattern, _ in _SECRETS[:2])
