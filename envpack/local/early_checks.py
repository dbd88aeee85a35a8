"""The files of a run, looked at before anything is made: an environment can take minutes, and a model to load, too."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from envpack.support.bounded_reading import opened
from envpack.support.errors import InputError


def check_sources(sources: Sequence[str]) -> None:
    """Refuse files that cannot be read. Whether they fit the model is known when it is loaded.

    Args:
        sources: files, each with or without ``INPUT=`` before it.

    Raises:
        InputError: one does not exist, is not a regular file, or may not be read (kind ``bad-input``).

    """
    for source in sources:
        _, _, named = source.partition("=")
        file = Path(named) if named and not Path(source).exists() else Path(source)
        try:
            with opened(file):
                pass
        except OSError as error:
            raise _bad(file, f"cannot be read: {error.strerror}", "give a file that you can read") from error


def check_can_save(file: Path) -> None:
    """Refuse a file that arrays cannot be written to.

    Raises:
        InputError: its folder does not exist or may not be written to, or NumPy is missing (kind ``bad-input``).

    """
    if importlib.util.find_spec("numpy") is None:
        raise _bad(file, "arrays need NumPy beside envpack", "pip install numpy")
    folder = file.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        reason = "its folder may not be written to" if folder.is_dir() else "its folder does not exist"
        raise _bad(file, f"cannot be written: {reason}", "give another file")


def _bad(file: Path, reason: str, hint: str) -> InputError:
    return InputError(reason, kind="bad-input", where=str(file), hint=hint)
