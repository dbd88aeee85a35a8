"""Custom configurations: files of a model that a server reads in place of config.pbtxt, by ``--model-config-name``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envpack.repository.config import parse_config
from envpack.repository.model import Model, examine_model, read_config
from envpack.support.errors import InputError
from envpack.support.placed_files import CONFIG_NAME

_FOLDER, _SUFFIX = "configs", ".pbtxt"


@dataclass(frozen=True)
class CustomConfig:
    """A custom configuration."""

    file: Path
    text: str  # "" if it cannot be read
    model: Model | None  # as a server with this configuration opens it
    faults: tuple[InputError, ...]


def custom_configs(folder: Path) -> Iterator[CustomConfig]:
    """The custom configurations of the model in a folder, sorted by name; none without a folder ``configs``."""
    place = folder.absolute() / _FOLDER
    names = sorted(os.listdir(place)) if place.is_dir() else []  # noqa: PTH208 - only names are needed
    for name in names:
        if is_custom_config(f"{_FOLDER}/{name}"):
            yield _examined(place / name)


def is_custom_config(path: str) -> bool:
    folder, _, name = path.partition("/")
    return folder == _FOLDER and "/" not in name and name.endswith(_SUFFIX) and not name.startswith(".")


def _examined(file: Path) -> CustomConfig:
    folder = file.parents[1]
    try:
        text = read_config(file)
        model, faults = examine_model(folder, parse_config(text, file))
    except InputError as error:
        return CustomConfig(file, "", None, (error,))
    for fault in faults:
        if fault.where == str(folder / CONFIG_NAME):
            fault.where = str(file)
    return CustomConfig(file, text, model, faults)


def python_configs(folder: Path) -> dict[Path, CustomConfig]:
    """The custom configurations with which the Python backend runs a model, by their files."""
    found = tuple(custom_configs(folder))
    for fault in (fault for config in found for fault in config.faults):
        raise fault
    return {config.file: config for config in found if config.model and config.model.has_stub}
