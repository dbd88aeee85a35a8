"""What a user should know of a model's requirements before its environment is made, or once it is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from envpack.repository.imports import find_own_module, imported_modules
from envpack.repository.model import Model
from envpack.requirements.format import unread_above
from envpack.requirements.import_names import is_of_package, is_provided, package_of
from envpack.requirements.model import Requirements
from envpack.support.text import enumerated

_MOST_IMPORTS = 20
# Commands that add packages to a lock and to what it was made from.
_COMMANDS = {
    "Pipfile.lock": "pipenv install",
    "pixi.lock": "pixi add --pypi",
    "poetry.lock": "poetry add",
    "uv.lock": "uv add",
}


def requirement_warnings(model: Model, requirements: Requirements, packages: Collection[str] | None) -> tuple[str, ...]:
    """What was left out of the requirements, what lies near and is not read, and what the code imports beyond them.

    ``packages`` are the names of all packages of the environment, None while they are not known.
    """
    if packages is None and not requirements.source:
        packages = requirements.pip
    imports = () if packages is None else _imports(model, requirements, packages)
    return (*requirements.warnings, *_above(model, requirements), *imports)


def _above(model: Model, requirements: Requirements) -> Iterator[str]:
    file = None if requirements.source else unread_above(model.folder)
    if file:
        yield (
            f"{model.folder.name}: it has no requirements of its own, and {file} is not read, so it gets NumPy alone:"
            f" for these packages, {_named_in_settings(model, file.name)}"
        )


def _named_in_settings(model: Model, file: str) -> str:
    return f'write [models.{model.folder.name}] and requirements = "{file}" into envpack.toml'


def _imports(model: Model, requirements: Requirements, packages: Collection[str]) -> Iterator[str]:
    found = imported_modules(model.folder, model.config.default_model_filename or "model.py").items()
    missing = {module: place for module, place in found if not is_provided(module, packages)}
    for module, place in missing.items():
        if own := _own_module(model, module):
            beside = f"copy it beside the model's code, into {place.rpartition('/')[0]}"
            yield f"{place}: it imports {module}, and servers do not look for it in {own.parent}: {beside}"
    modules = [module for module in missing if not _own_module(model, module)][:_MOST_IMPORTS]
    if modules:
        remedy = _remedy(model, requirements, [*dict.fromkeys(map(package_of, modules))])
        place, names = missing[modules[0]], enumerated(modules)
        yield f"{place}: it imports {names}, which none of its packages provides: {remedy}"


def _own_module(model: Model, module: str) -> Path | None:
    return None if is_of_package(module) else find_own_module(module, model.folder)


def _remedy(model: Model, requirements: Requirements, packages: Sequence[str]) -> str:
    """What to do so that the requirements have more packages."""
    file, names = requirements.source, enumerated(packages)
    if not file:
        file = model.folder / "requirements.txt"
        own = f"write {enumerated(['numpy', *packages])} into {file}, each on a line of its own"
        beside = unread_above(model.folder.parent)  # beside the repository, where a project often has them
        return f"{own}; or, for those in {beside}, {_named_in_settings(model, f'../{beside.name}')}" if beside else own
    if file.name in _COMMANDS:
        return f"run in {file.parent}: {_COMMANDS[file.name]} {' '.join(packages)}"
    if requirements.locked_conda or requirements.locked_pip:
        return f"add {names} to what {file} was made from, and make it again"
    return f"add {names} to {file}"
