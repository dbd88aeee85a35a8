"""What a user should know of a model's requirements: what is not read, and what its code imports beyond them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from envpack.repository.imports import find_own_module, imported_modules
from envpack.repository.model import Model
from envpack.requirements.format import naming, unread_in
from envpack.requirements.import_names import is_of_package, is_provided, requirement_of
from envpack.requirements.model import Requirements
from envpack.support.errors import InputError
from envpack.support.text import enumerated

NUMPY_ALONE = Requirements(pip=("numpy",))
"""What a model without requirements gets, since no model runs without NumPy."""

_MOST_IMPORTS = 20
# Commands that add packages to a lock and to what it was made from.
_COMMANDS = {
    "Pipfile.lock": "pipenv install",
    "pixi.lock": "pixi add --pypi",
    "poetry.lock": "poetry add",
    "uv.lock": "uv add",
}


def missing_requirements(model: Model, python: str) -> InputError | None:
    """What keeps a model without requirements from a build: its code imports more than NumPy."""
    places = _of_packages(model, _missing(model, python, NUMPY_ALONE.pip))
    if not places:
        return None
    packages = enumerated(["numpy", *_packages(places)])
    fix = f"write {packages} into {model.folder / 'requirements.txt'}, each on a line of its own"
    if near := _unread(model, beside=True):
        found, named = near
        fix += f"; or, for those in {found}, {naming(model.folder, named)}"
    what = f"it imports {enumerated([*places])}, and the model has no requirements: a build would give it NumPy alone"
    return InputError("requirements-missing", what, fix, next(iter(places.values())))


def requirement_warnings(
    model: Model, requirements: Requirements, python: str, packages: Collection[str] | None
) -> Iterator[str]:
    """What requirements leave out, what is not read, and imports beyond ``packages``, if these are known yet."""
    yield from requirements.warnings
    if not requirements.source and (near := _unread(model)):
        file, named = near
        yield (
            f"{model.folder.name}: it has no requirements of its own, and {file} is not read, so it gets NumPy alone:"
            f" for these packages, {naming(model.folder, named)}"
        )
    known = NUMPY_ALONE.pip if packages is None and not requirements.source else packages
    missing = {} if known is None else _missing(model, python, known)
    for module, place in missing.items():
        if own := _own_module(model, module):
            beside = f"copy it beside the model's code, into {place.rpartition('/')[0]}"
            yield f"{place}: it imports {module}, and servers do not look for it in {own.parent}: {beside}"
    places = _of_packages(model, missing)
    if places and requirements.source:
        what = f"it imports {enumerated([*places])}, which none of its packages provides"
        fix = addition_of(_packages(places), requirements, requirements.source)
        yield f"{next(iter(places.values()))}: {what}: {fix}"


def _unread(model: Model, *, beside: bool = False) -> tuple[Path, str] | None:
    """A requirements file where projects often have it (model, repository or ``beside`` that), with its name."""
    repository = model.folder.parent
    versions = {f"{model.folder.name}/{number}/": model.folder / str(number) for number in model.served_versions()}
    own = {**versions, f"{model.folder.name}/": model.folder}
    folders = {**own, "": repository, **({"../": repository.parent} if beside else {})}
    for name, folder in folders.items():
        if file := unread_in(folder):
            return file, f"{name}{file.relative_to(folder)}"
    return None


def addition_of(packages: Sequence[str], requirements: Requirements, file: Path) -> str:
    if file.name in _COMMANDS:
        return f"run in {file.parent}: {_COMMANDS[file.name]} {shlex.join(packages)}"
    if requirements.locked_conda or requirements.locked_pip:
        return f"add {enumerated(packages)} to what {file} was made from, and make it again"
    return f"add {enumerated(packages)} to {file}"


def _missing(model: Model, python: str, packages: Collection[str]) -> dict[str, str]:
    """Imported modules that neither a Python nor one of some packages provides, with their places."""
    found = imported_modules(model.folder, python, model.code_file)
    return {module: place for module, place in found.items() if not is_provided(module, packages)}


def _of_packages(model: Model, missing: Mapping[str, str]) -> dict[str, str]:
    """Those of some modules that the project does not have."""
    others = [(module, place) for module, place in missing.items() if not _own_module(model, module)]
    return dict(others[:_MOST_IMPORTS])


def _packages(modules: Collection[str]) -> Sequence[str]:
    return [*dict.fromkeys(map(requirement_of, modules))]


def _own_module(model: Model, module: str) -> Path | None:
    return None if is_of_package(module) else find_own_module(module, model.folder)
