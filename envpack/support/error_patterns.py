"""Tables of error output of external programs, and the errors of envpack that they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from envpack.support.errors import EnvironmentBuildError, StorageError
from envpack.support.storage_errors import DISK_FULL_TEXT, disk_full


@dataclass(frozen=True)
class ErrorPattern:
    """A way in which a program fails.

    Attributes:
        kind: kind of the error.
        pattern: regular expression for the program's output; an empty one matches everything and ends a table.
        message: of the error; the fields of `error_from_output` and the named groups of ``pattern`` in braces.
        hint: what the user can do, with the same fields.
    """

    kind: str
    pattern: str
    message: str
    hint: str


def error_from_output(
    patterns: Iterable[ErrorPattern], output: str, *, storage: Path, where: str = "", details: str = "", **fields: str
) -> EnvironmentBuildError | StorageError:
    """The error for a program's output: a full disk if the output mentions one, else the first pattern that matches.

    Args:
        patterns: a table whose last pattern matches everything.
        output: what the program wrote.
        storage: a path on the disk that the program writes to, for a full disk.
        where: file, folder or address that the error is about.
        details: the full output, without secrets.
        fields: values for the braces in messages and hints.
    """
    if DISK_FULL_TEXT in output:
        return disk_full(storage)
    pattern, match = next((entry, match) for entry in patterns if (match := re.search(entry.pattern, output)))
    values = fields | match.groupdict()
    return EnvironmentBuildError(
        pattern.message.format(**values),
        kind=pattern.kind,
        where=where,
        hint=pattern.hint.format(**values),
        details=details,
    )
