"""TOML as a table; it knows no lines but those of syntax errors."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from envpack.requirements.problem import Location

_HINT = "correct the file, or make it again with the tool that wrote it"


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Parse a file.

    Raises:
        InputError: it is not TOML; says the line.

    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise Location(path).error("is nested too deeply", hint=_HINT) from error
    except ValueError as error:  # also of dates and numbers that are none
        line = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        reason = str(error).removesuffix(line.group()) if line else str(error).splitlines()[0]
        raise Location(path, int(line[1]) if line else 0).error(f"not valid TOML: {reason}", hint=_HINT) from error


def line_of(text: str, needle: str) -> int:
    """The first line in which a text stands, 0 if there is none."""
    place = text.find(needle) if needle else -1
    return text.count("\n", 0, place) + 1 if place >= 0 else 0
