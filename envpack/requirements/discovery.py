"""Find the requirements file of a model among the names that projects use."""

from __future__ import annotations

import os
import re
from pathlib import Path

from envpack.requirements.location import Location
from envpack.support.bounded_reading import parse_toml, read_text
from envpack.support.errors import InputError

# Locks come first: they were resolved from one of the others. The last ones are refused, with the command that helps.
FILE_NAMES = (
    "pixi.lock",
    "conda-lock.yml",
    "conda-lock.yaml",
    "uv.lock",
    "pylock.toml",
    "poetry.lock",
    "Pipfile.lock",
    "environment.yml",
    "environment.yaml",
    "conda.yaml",
    "conda.yml",
    "python_env.yaml",
    "requirements.txt",
    "requirements.in",
    "pyproject.toml",
    "setup.cfg",
    "pixi.toml",
    "Pipfile",
    "setup.py",
)
# Other names of environment files and requirements files, after those above.
_PATTERNS = (
    re.compile(r"(?:[\w.-]*[-_.])?(?:conda[-_]?)?(?:env|environment|conda)s?(?:[-_.\d][\w.-]*)?\.ya?ml", re.IGNORECASE),
    re.compile(r"(?:[\w.-]*[-_.])?requirements?(?:[-_.][\w.-]+)?\.(?:txt|in)", re.IGNORECASE),
)
_CONDA_CONTENT = re.compile(r"^dependencies\s*:", re.MULTILINE)
_FOR_DEVELOPERS = re.compile(r"(?:^|[-_.])(?:dev|develop|development|tests?|testing|docs?|lint|build|ci)(?=[-_.])")
_TOOLS = ("poetry", "pixi", "envpack")
_MOST_BYTES = 1 << 20
_MOST_NAMED = 5


def find_requirements(model_folder: Path) -> Path | None:
    """The requirements file of a model: the first in its folder by `FILE_NAMES`, else one with a similar name.

    It need not be readable: `read_requirements` refuses a pipe, a broken link, and formats of other tools. A
    ``pyproject.toml`` or ``setup.cfg`` with the settings of tools alone is none, nor is a YAML file without
    ``dependencies`` under another name than those of conda.

    Returns:
        The file; ``None`` if there is none.
    """
    candidates = (model_folder / name for name in FILE_NAMES)
    found = next((file for file in candidates if os.path.lexists(file) and _has_requirements(file)), None)
    return found or _similar(model_folder)


def _similar(folder: Path) -> Path | None:
    try:
        files = sorted(file for file in folder.iterdir() if file.is_file())
    except OSError:
        return None
    for pattern in _PATTERNS:
        found = [file for file in files if pattern.fullmatch(file.name) and _has_requirements(file)]
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


def _has_requirements(file: Path) -> bool:
    """Whether a file whose name allows it holds requirements; one that cannot be read may, so that it is reported."""
    if file.name not in ("pyproject.toml", "setup.cfg") and (file.name in FILE_NAMES or file.suffix in (".txt", ".in")):
        return True
    try:
        text = read_text(file, most=_MOST_BYTES)
        if file.name == "setup.cfg":
            return re.search(r"^install_requires\b", text, re.MULTILINE) is not None
        if file.name != "pyproject.toml":
            return _CONDA_CONTENT.search(text) is not None
        content = parse_toml(text)
    except (OSError, ValueError):
        return file.name in FILE_NAMES
    tools = content.get("tool", {})
    named = isinstance(tools, dict) and any(name in tools for name in _TOOLS)
    return named or "project" in content


def unread_above(model_folder: Path) -> Path | None:
    """A requirements file in the folder above a model's, which is not read unless envpack.toml names it."""
    try:
        return find_requirements(model_folder.parent)
    except InputError:
        return None
