"""Text in the form in which envpack shows and compares it."""

from __future__ import annotations

import re

_MAX_LINE = 300  # characters
# Control characters but tab and newline, marks that change the direction of writing, and bytes that are no text.
_UNPRINTABLE = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def one_line(text: str) -> str:
    """A text on one line, cut after 300 characters; the full text belongs in the details of an error."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE].rpartition(' ')[0]} …"


def clipped(text: str, most: int = 2000) -> str:
    """A text, without its middle if it is longer than a number of characters.

    >>> clipped("abcdefghij", 4)
    'ab … 6 characters … ij'
    """
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"


def printable(text: str) -> str:
    r"""A text from outside without what could control a terminal or disguise its content.

    Control characters, marks of writing direction and undecodable bytes become visible, as in Python's literals.

    >>> printable("\x1b[2Jall is well")
    '\x1b[2Jall is well'
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


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
