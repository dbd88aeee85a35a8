"""Find and read the requirements of a model; each file format has its own module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.requirements.location import Location
from envpack.requirements.model import Requirements
from envpack.requirements.parsing import read_text

if TYPE_CHECKING:
    from envpack.requirements.target import Target

FILE_NAMES = (
    # Locks come first: they were resolved from one of the others.
    "pixi.lock",
    "conda-lock.yml",
    "pylock.toml",
    "environment.yml",
    "environment.yaml",
    "conda.yaml",
    "python_env.yaml",
    "requirements.txt",
    "pyproject.toml",
)
_YAML = {".yml", ".yaml", ".lock"}


def find_requirements(model_folder: Path) -> Path | None:
    """The requirements file of a model: the first of `FILE_NAMES` in its folder, ``None`` if it has none of them.

    It need not be a file: `read_requirements` refuses a pipe, a folder or a broken link of that name.
    """
    candidates = (model_folder / name for name in FILE_NAMES)
    return next((file for file in candidates if os.path.lexists(file)), None)


def read_requirements(
    path: Path | None, *, platform: str = "linux-64", python: str = "", glibc: str = "2.35"
) -> Requirements:
    """Read a requirements file. Its name, and for YAML and lists its content, determines the format.

    Args:
        path: the file; ``None``, for a model without one, returns empty requirements.
        platform: ``"linux-64"`` or ``"linux-aarch64"``, selects packages of a lock for several platforms.
        python: Python version, minor or full, selects wheels of a lock for several versions; ``""`` for the lock's own.
        glibc: version of the target's C library, selects wheels of a lock.

    Raises:
        InputError: the file does not exist, or contains something that envpack does not support; names the line.
        ValueError: platform, python or glibc is malformed.
    """
    from envpack.requirements.conda_lock import is_explicit, read_explicit
    from envpack.requirements.target import Target

    if path is None:
        return Requirements()
    target = Target(platform, python, glibc)
    text = read_text(path)
    if is_explicit(text):
        return read_explicit(text, path, target)
    if path.suffix == ".toml":
        return _read_toml(text, path, target)
    if path.suffix in _YAML:
        return _read_yaml(text, path, target)
    from envpack.requirements.pip_file import read_pip_file

    return read_pip_file(path)


def _read_toml(text: str, path: Path, target: Target) -> Requirements:
    from envpack.requirements.parsing import parse_toml
    from envpack.requirements.pylock import read_pylock
    from envpack.requirements.pyproject import read_pyproject

    content = parse_toml(text, path)
    if "lock-version" in content or path.name.startswith("pylock."):
        return read_pylock(content, text, path, target)
    if path.name == "pyproject.toml" or "project" in content or "dependency-groups" in content:
        return read_pyproject(content, text, path)
    raise Location(path).error("is neither a pyproject.toml nor a pylock.toml", hint="name one of these")


def _read_yaml(text: str, path: Path, target: Target) -> Requirements:
    from envpack.requirements.conda_environment import is_python_env, read_conda_environment, read_python_env
    from envpack.requirements.conda_lock import is_conda_lock, read_conda_lock
    from envpack.requirements.pixi_lock import is_pixi_lock, read_pixi_lock
    from envpack.requirements.yaml_reading import parse_yaml

    content = parse_yaml(text, path)
    if is_pixi_lock(content):
        return read_pixi_lock(content, target)
    if is_conda_lock(content):
        return read_conda_lock(content, target)
    if is_python_env(content):
        return read_python_env(content)
    if path.suffix == ".lock":
        raise Location(path).error(
            "is not a lock of pixi or conda-lock", hint="name the lock, or the file it was resolved from"
        )
    return read_conda_environment(content, target)
