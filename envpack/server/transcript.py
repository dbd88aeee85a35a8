"""The output of a server and its models, read with a limit: a model can print without end."""

from __future__ import annotations

import os

_HEAD, _TAIL = 1 << 20, 3 << 20  # bytes of an excerpt


def excerpt(handle: int, since: int = 0) -> str:
    """The output from a position on: all of it, or its beginning and its end.

    Returns:
        At most 4 MiB of text; a line says how much is left out between beginning and end.
    """
    size = os.fstat(handle).st_size
    if size - since <= _HEAD + _TAIL:
        return _read(handle, since, size - since)
    left_out = size - since - _HEAD - _TAIL
    return f"{_read(handle, since, _HEAD)}\n… {left_out} bytes are left out …\n{_read(handle, size - _TAIL, _TAIL)}"


def _read(handle: int, start: int, count: int) -> str:
    pieces = []
    while count > 0 and (piece := os.pread(handle, count, start)):
        pieces.append(piece)
        start, count = start + len(piece), count - len(piece)
    return b"".join(pieces).decode("utf-8", "replace")
