"""Files of other tools that are not read, each refused with the command that makes a file that is."""

from __future__ import annotations

from envpack.requirements.format import Source, reads
from envpack.requirements.model import Requirements

_CONVERSIONS = {
    "pixi.toml": ("pixi resolves it into a pixi.lock", "pixi lock"),
    "pdm.lock": (
        "PDM writes it out as a pylock.toml",
        "pdm export --format pylock --output pylock.toml",
    ),
    "Pipfile": ("pipenv resolves it into a Pipfile.lock", "pipenv lock"),
    "setup.py": (
        "it is a program, so its requirements cannot be read",
        "uv pip compile setup.py --output-file requirements.txt",
    ),
}


@reads(*_CONVERSIONS, order=90)
def refuse(source: Source) -> Requirements:
    """`pixi.toml`, `pdm.lock`, `Pipfile`, `setup.py`

    Read: nothing

    Refused: with the command that makes a file that is read: `pixi lock`, `pdm export`, `pipenv lock`, `uv pip compile
    setup.py`
    """
    reason, command = _CONVERSIONS[source.path.name]
    raise source.location.error(f"{source.path.name} is not read: {reason}", hint=f"run in its folder: {command}")
