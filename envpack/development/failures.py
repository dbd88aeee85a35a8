"""Errors of loads and requests, with the lines of the model's code first."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from pathlib import Path

from envpack.server import configuration_error, is_poll_failure, read_model_error

_SYNTAX = re.compile(r"\((?P<file>\w+\.py), line (?P<line>\d+)\)$")
_TRACE = "At:"  # begins the list of frames
_FRAME = re.compile(r"(?P<file>/.+):(?P<line>\d+) in (?P<function>.+)")


def load_failure(message: str, folder: Path, on_server: str, log: str) -> str:
    """What a failed load or request says, in lines.

    Returns the problem; each place in the model's code, the innermost first, with its line; the rest of the
    message.
    """
    error = read_model_error(message, on_server)
    frames = [*reversed(error.frames)] or _syntax_frame(error.reason, folder, on_server)
    places = [line for frame in frames for line in _place(frame, folder, on_server)]
    details = [line.rstrip() for line in error.text.splitlines()[1:] if line.strip()]
    if places:  # without what these lines repeat
        details = [line for line in details if f"{on_server}/" not in line]
        details = details if details != [_TRACE] else []
    reason = error.reason
    if is_poll_failure(message) and (better := configuration_error(log)):
        reason = better
    return "\n".join([reason, *places, *details])


def load_timeout(seconds: float, frames: Sequence[str], folder: Path, on_server: str) -> str:
    """What is said of a load that took too long, in lines.

    Returns the problem; each place in the model's code with its line; what to do.
    """
    places = [line for frame in frames for line in _place(frame, folder, on_server)]
    return "\n".join([f"not loaded after {seconds:g} s, and ended", *places, "--timeout allows more time"])


def _syntax_frame(reason: str, folder: Path, on_server: str) -> list[str]:
    """The place that a syntax error names; a server passes on no more of it than the file's name and the line."""
    found = _SYNTAX.search(reason)
    if found is None:
        return []
    files = sorted(folder.glob(f"[1-9]*/**/{found['file']}"))
    return [f"{on_server}/{files[0].relative_to(folder)}:{found['line']} in <module>"] if len(files) == 1 else []


def _place(frame: str, folder: Path, on_server: str) -> list[str]:
    found = _FRAME.fullmatch(frame)
    if found is None:
        return [frame]
    file = folder / found["file"].removeprefix(f"{on_server}/")
    linecache.checkcache(str(file))
    code = linecache.getline(str(file), int(found["line"])).strip()
    shown = f"{folder.name}/{file.relative_to(folder)}:{found['line']} in {found['function']}"
    return [shown, f"    {code}"] if code else [shown]
