"""Text in the form in which envpack shows and compares it."""

from __future__ import annotations

import re

_MAX_LINE = 300  # characters


def one_line(text: str) -> str:
    """A text on one line, cut after 300 characters; the full text belongs in the details of an error."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE].rpartition(' ')[0]} …"


def normalise_name(name: str) -> str:
    """A package's name as package indexes compare it (PEP 503): ``scikit-learn`` for ``Scikit_Learn``."""
    return re.sub(r"[-_.]+", "-", name).strip("-").lower()


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it belongs.

    >>> counted(1, "model"), counted(3, "model"), counted(2, "entry")
    ('1 model', '3 models', '2 entries')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun.removesuffix('y')}ies" if noun.endswith("y") else f"{number} {noun}s"
