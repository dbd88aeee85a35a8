"""Files of other tools that envpack does not read, each with the command that makes one that it reads."""

from __future__ import annotations

from pathlib import Path

from envpack.requirements.location import Location
from envpack.support.errors import InputError

# For each file: why it is not read, and the command.
_CONVERSIONS = {
    "Pipfile": ("pipenv resolves it into a Pipfile.lock", "pipenv lock"),
    "pixi.toml": ("pixi resolves it into a pixi.lock", "pixi lock"),
    "setup.py": (
        "it is a program, so its requirements cannot be read",
        "uv pip compile setup.py --output-file requirements.txt",
    ),
}


def conversion_error(path: Path) -> InputError | None:
    """The error for a file that another tool must convert first; ``None`` for all others."""
    if path.name not in _CONVERSIONS:
        return None
    reason, command = _CONVERSIONS[path.name]
    return Location(path).error(f"{path.name} is not read: {reason}", hint=f"run in its folder: {command}")
