"""Paths that begin with ``~``, and the home folder that they need."""

from __future__ import annotations

from pathlib import Path

from envpack.support.errors import InputError


def expand_home(text: str, where: str) -> Path:
    """A path whose leading ``~`` or ``~user`` is replaced by that user's home folder.

    Args:
        text: the path.
        where: file or setting that contains it, for the error.

    Raises:
        InputError: kind ``no-home``: there is no such user, or this process has no home folder.
    """
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):  # also of a null byte
        raise no_home(f"{text!r} begins with a home folder that is not known", where) from None


def no_home(message: str, where: str) -> InputError:
    """The error for a home folder that the system does not know."""
    return InputError(
        message, kind="no-home", where=where, hint="write the whole path, or set HOME and ENVPACK_CACHE_DIR to folders"
    )
