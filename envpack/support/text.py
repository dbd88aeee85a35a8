"""What programs say, made fit for one line."""

from __future__ import annotations

_LONGEST = 300  # characters


def gist(text: str) -> str:
    """The beginning of a text as one line; the whole goes into the details of an error."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST].rpartition(' ')[0]} …"
