"""Text in the form in which envpack shows and compares it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence

_MAX_LINE = 300  # characters
# Control characters but tab and newline, characters that are invisible or change the direction of writing, and bytes
# that are no text.
_UNPRINTABLE = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
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

    Control characters, invisible ones, marks of writing direction and undecodable bytes become visible, as in Python's
    literals.

    >>> printable("\x1b[2Jall is well")
    '\x1b[2Jall is well'
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def printable_line(text: str) -> str:
    r"""A text from outside as `printable`, and on one line.

    >>> printable_line("a\nVERDICT: yes")
    'a\\nVERDICT: yes'
    """
    return printable(text).replace("\r", "\\r").replace("\n", "\\n")


def normalise_name(name: str) -> str:
    """A package's name as package indexes compare it (PEP 503): ``scikit-learn`` for ``Scikit_Learn``."""
    return re.sub(r"[-_.]+", "-", name).strip("-").lower()


def toml_key(name: str) -> str:
    """A name as a part of a key in TOML: in quotes if it has other characters than a key may have.

    >>> print(toml_key("my_model-2"), toml_key("yolo.v5"))
    my_model-2 "yolo.v5"
    """
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def major_number(version: str) -> int:
    """The first number of a version, 0 if it does not begin with one.

    >>> major_number("2.1.3"), major_number("unknown")
    (2, 0)
    """
    major = version.partition(".")[0]
    return int(major) if major.isascii() and major.isdigit() and len(major) < 10 else 0


def is_sha256(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def may_be_path(value: object) -> bool:
    """Whether a value from outside is a text that can be in the name of a file."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return False


def line_in_parentheses(place: str, known: str = "") -> str:
    """The line of a place as a remark behind what stands there, with the file if it is not that of a known place.

    ``""`` if the place is no line of a file.

    >>> line_in_parentheses("environment.yml:7"), line_in_parentheses("more.txt:7", "requirements.txt:1")
    (' (line 7)', ' (more.txt:7)')
    """
    file, _, number = place.rpartition(":")
    other = known and file != known.rpartition(":")[0]
    return f" ({place if other else f'line {number}'})" if number.isdigit() else ""


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it belongs.

    >>> counted(1, "model"), counted(3, "model"), counted(2, "entry"), counted(2, "process")
    ('1 model', '3 models', '2 entries', '2 processes')
    """
    if number == 1:
        return f"1 {noun}"
    return (
        f"{number} {noun.removesuffix('y')}ies" if noun.endswith("y") else f"{number} {noun}{'e' * noun.endswith('s')}s"
    )


def enumerated(names: Sequence[str]) -> str:
    """One or more names as a sentence has them.

    >>> enumerated(["a"]), enumerated(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
