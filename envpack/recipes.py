"""Complete model repositories that are part of envpack."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError, UsageError
from envpack.support.installation import shipped_folder
from envpack.support.replacement import replaced_folder


@dataclass(frozen=True)
class Example:
    """What `envpack init` can copy.

    Attributes:
        name: what the user types.
        title: what it shows, in one line.
    """

    name: str
    title: str


def recipes() -> tuple[Example, ...]:
    """The recipes, sorted by name; their titles are the first lines of their README files."""
    return tuple(Example(name, _title(_recipes() / name / "README.md")) for name in recipe_names())


def recipe_names() -> tuple[str, ...]:
    """Names of the recipes, sorted."""
    return tuple(sorted(folder.name for folder in _recipes().iterdir() if folder.is_dir()))


def copy_recipe(name: str, destination: Path) -> None:
    """Copy a recipe to a folder that does not exist or is empty.

    Raises:
        UsageError: kind ``unknown-recipe``.
        InputError: kind ``not-empty``: the destination is a file, or a folder with content.
        OSError: the destination cannot be written.
    """
    if name not in recipe_names():
        raise UsageError(f"unknown recipe {name!r}", kind="unknown-recipe", hint=f"known: {', '.join(recipe_names())}")
    destination = destination.absolute()
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise InputError(
            "this folder is not empty",
            kind="not-empty",
            where=str(destination),
            hint="name another folder, or remove this one",
        )
    destination.parent.mkdir(parents=True, exist_ok=True)
    with replaced_folder(destination) as partial:
        shutil.copytree(_recipes() / name, partial, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def _title(readme: Path) -> str:
    return read_text(readme).partition("\n")[0].removeprefix("# ")


def _recipes() -> Path:
    return shipped_folder("recipes")
