"""What a user should know of a model's requirements although they can be installed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from envpack.repository import Model, imported_modules
from envpack.requirements import Requirements, is_provided, package_of, unread_above

_MOST_IMPORTS = 5
# Commands that add a package to a lock and to what it was made from.
_COMMANDS = {
    "Pipfile.lock": "pipenv install",
    "pixi.lock": "pixi add --pypi",
    "poetry.lock": "poetry add",
    "uv.lock": "uv add",
}


def requirement_warnings(model: Model, requirements: Requirements, packages: Collection[str]) -> tuple[str, ...]:
    """What was left out of the requirements, what lies near and is not read, and what the code imports beyond them."""
    return (*requirements.warnings, *_above(model, requirements), *_imports(model, requirements, packages))


def _above(model: Model, requirements: Requirements) -> Iterator[str]:
    file = None if requirements.source else unread_above(model.folder)
    if file:
        name = model.folder.name
        yield (
            f"{name}: it has no requirements of its own, and {file} is not read, so it gets NumPy alone: for these"
            f' packages, write [models.{name}] and requirements = "{file.name}" into envpack.toml'
        )


def _imports(model: Model, requirements: Requirements, packages: Collection[str]) -> Iterator[str]:
    missing = {
        module: place for module, place in imported_modules(model.folder).items() if not is_provided(module, packages)
    }
    for module, place in list(missing.items())[:_MOST_IMPORTS]:
        remedy = _remedy(model, requirements, package_of(module))
        yield f"{place}: it imports {module}, which none of its packages provides: {remedy}"


def _remedy(model: Model, requirements: Requirements, package: str) -> str:
    """What to do so that the requirements have one more package."""
    file = requirements.source
    if not file:
        return f"write numpy and {package} into {model.folder / 'requirements.txt'}, each on a line of its own"
    if file.name in _COMMANDS:
        return f"run in {file.parent}: {_COMMANDS[file.name]} {package}"
    if requirements.locked_conda or requirements.locked_pip:
        return f"add {package} to what {file} was made from, and make it again"
    return f"add {package} to {file}"
