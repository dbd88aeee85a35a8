"""Find the requirements file of a model among the names that projects use."""

from __future__ import annotations

import os
import re
from pathlib import Path

from envpack.requirements.format import Format, all_formats
from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError
from envpack.support.tables import Location

_FOR_DEVELOPERS = re.compile(r"(?:^|[-_.])(?:dev|develop|development|tests?|testing|docs?|lint|build|ci)(?=[-_.])")
_MOST_BYTES = 1 << 20
_MOST_NAMED = 5


def find_requirements(model_folder: Path) -> Path | None:
    """The requirements file of a model: the first in its folder by the formats' names, else one with a similar name.

    It need not be readable: `read_requirements` refuses a pipe, a broken link, and formats of other tools. A
    ``pyproject.toml`` or ``setup.cfg`` with the settings of tools alone is none, nor is a YAML file without
    ``dependencies`` under another name than those of conda.
    """
    for known in all_formats():
        for file in (model_folder / name for name in known.names):
            if os.path.lexists(file) and _has_requirements(known, file):
                return file
    return _similar(model_folder)


def _similar(folder: Path) -> Path | None:
    try:
        files = sorted(file for file in folder.iterdir() if file.is_file())
    except OSError:
        return None
    for known in all_formats():
        pattern = known.similar
        found = [file for file in files if pattern and pattern.fullmatch(file.name) and _has_requirements(known, file)]
        serving = [file for file in found if not _FOR_DEVELOPERS.search(file.name.lower())]
        found = serving or found
        if len(found) > 1:
            names = ", ".join(file.name for file in found[:_MOST_NAMED])
            raise Location(folder).error(
                f"several files may hold the requirements: {names}",
                hint=f'name one in envpack.toml: [models.{folder.name}] requirements = "{folder.name}/{found[0].name}"',
            )
        if found:
            return found[0]
    return None


def _has_requirements(known: Format, file: Path) -> bool:
    """Whether a file whose name allows it holds requirements; one that cannot be read may, so that it is reported."""
    if not known.holds:
        return True
    try:
        return known.holds(file.name, read_text(file, most=_MOST_BYTES))
    except (OSError, ValueError):
        return file.name in known.names


def unread_above(model_folder: Path) -> Path | None:
    """A requirements file in the folder above a model's, which is not read unless envpack.toml names it."""
    try:
        return find_requirements(model_folder.parent)
    except InputError:
        return None
