"""Complete model repositories that are part of envpack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envpack.support.errors import InputError, UsageError
from envpack.support.examples import example_files
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
    return tuple(Example(name, _title(files["README.md"])) for name, files in example_files("recipes").items())


def recipe_names() -> tuple[str, ...]:
    """Names of the recipes, sorted."""
    return tuple(example_files("recipes"))


def copy_recipe(name: str, destination: Path) -> None:
    """Copy a recipe to a folder that does not exist or is empty."""
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
        for path, content in example_files("recipes")[name].items():
            (partial / path).parent.mkdir(parents=True, exist_ok=True)
            (partial / path).write_bytes(content)


def _title(readme: bytes) -> str:
    return readme.decode().partition("\n")[0].removeprefix("# ")
