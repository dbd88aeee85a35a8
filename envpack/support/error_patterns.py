"""Tables of what programs say when they fail, and what envpack says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from envpack.support.errors import EnvironmentBuildError
from envpack.support.storage_errors import DISK_FULL_TEXT, disk_full


@dataclass(frozen=True)
class ErrorPattern:
    """A way to fail.

    Attributes:
        kind: of the error.
        pattern: how programs word it, as an expression; one that fits everything ends a table.
        says: what envpack says, with the fields of `error_from_output` and the named groups of ``pattern`` in braces.
        hint: what to do, with the same fields.

    """

    kind: str
    pattern: str
    says: str
    hint: str


def error_from_output(
    causes: Iterable[ErrorPattern], said: str, *, full: Path, where: str = "", details: str = "", **fields: str
) -> EnvironmentBuildError:
    """The error for what a program has said, by the first cause that fits; a full disk comes before all.

    Args:
        causes: a table whose last one fits everything.
        said: what the program said.
        full: what could be full.
        where: what it is about.
        details: all that it said, without secrets.
        fields: what the causes name in braces.

    """
    if DISK_FULL_TEXT in said:
        return disk_full(full)
    cause, found = next((one, match) for one in causes if (match := re.search(one.pattern, said)))
    known = fields | found.groupdict()
    return EnvironmentBuildError(
        cause.says.format(**known), kind=cause.kind, where=where, hint=cause.hint.format(**known), details=details
    )
