"""The package indexes that requirements name, in front of those of the user's settings."""

from __future__ import annotations

import re
from pathlib import Path

from envpack.requirements import Requirements
from envpack.support.isolation import clean_environment
from envpack.support.text import normalise_name
from envpack.support.uv import pip_indexes


def index_variables(requirements: Requirements) -> dict[str, str]:
    """The indexes of requirements as variables for uv.

    In a requirements file, uv would let its own variables win, so that a package could come from another index than the
    file names. Variables also keep passwords off the command line.
    """
    default, others = _indexes(requirements.pip_options)
    variables = {"UV_DEFAULT_INDEX": default, "UV_INDEX_URL": default} if default else {}
    if others:
        own = pip_indexes() | clean_environment()
        variables["UV_INDEX"] = " ".join([*others, own.get("UV_INDEX", "")]).strip()
    return variables


def _indexes(options: tuple[str, ...]) -> tuple[str, list[str]]:
    """The address that replaces the default index, ``""`` for none, and those of further indexes."""
    named = [
        option.split(maxsplit=1) for option in options if option.startswith(("--index-url ", "--extra-index-url "))
    ]
    addresses = [(name, Path(place).as_uri() if place.startswith("/") else place) for name, place in named]
    default = [address for name, address in addresses if name == "--index-url"]
    return default[-1] if default else "", [address for name, address in addresses if name != "--index-url"]


def requirement_name(line: str) -> str:
    """The normalised name of the package in a line of requirements."""
    return normalise_name(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0])
