"""Read the requirements of a model; each file format has its own module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.requirements.location import Location
from envpack.requirements.model import Requirements
from envpack.requirements.parsing import read_text

if TYPE_CHECKING:
    from envpack.requirements.pylock import ChoosePython
    from envpack.requirements.target import Target

# Files of other tools that are not read; for each: why it is not read, and the command.
_CONVERSIONS = {
    "Pipfile": ("pipenv resolves it into a Pipfile.lock", "pipenv lock"),
    "pixi.toml": ("pixi resolves it into a pixi.lock", "pixi lock"),
    "setup.py": (
        "it is a program, so its requirements cannot be read",
        "uv pip compile setup.py --output-file requirements.txt",
    ),
}
_YAML = {".yml", ".yaml", ".lock"}


def read_requirements(
    path: Path | None,
    *,
    platform: str = "linux-64",
    python: str | Callable[[Requirements], str] = "",
    glibc: str = "2.35",
) -> Requirements:
    """Read a requirements file. Its name, and for YAML and lists its content, determines the format."""
    from envpack.requirements.conda_lock import is_explicit, read_explicit
    from envpack.requirements.target import Target

    if path is None:
        return Requirements()
    target = Target(platform, python if isinstance(python, str) else "", glibc)
    choose = None if isinstance(python, str) else python
    text = read_text(path)
    if is_explicit(text):
        return read_explicit(text, path, target)
    found = _read_project(text, path, target, choose)
    if found:
        return found
    if path.suffix == ".toml":
        return _read_toml(text, path, target, choose)
    if path.suffix in _YAML:
        return _read_yaml(text, path, target)
    from envpack.requirements.pip_file import read_pip_file

    return read_pip_file(path)


def _read_project(text: str, path: Path, target: Target, choose: ChoosePython | None) -> Requirements | None:
    """The requirements of a file that tools for projects know by its name; ``None`` for all others."""
    if path.name in _CONVERSIONS:
        reason, command = _CONVERSIONS[path.name]
        raise Location(path).error(f"{path.name} is not read: {reason}", hint=f"run in its folder: {command}")
    if path.name == "uv.lock":
        from envpack.requirements.uv_lock import read_uv_lock

        return read_uv_lock(path, target, choose)
    if path.name == "poetry.lock":
        from envpack.requirements.parsing import parse_toml
        from envpack.requirements.poetry_lock import read_poetry_lock

        return read_poetry_lock(parse_toml(text, path), text, path)
    if path.name == "Pipfile.lock":
        from envpack.requirements.pipfile_lock import read_pipfile_lock

        return read_pipfile_lock(text, path)
    if path.name == "setup.cfg":
        from envpack.requirements.setup_cfg import read_setup_cfg

        return read_setup_cfg(text, path)
    return None


def _read_toml(text: str, path: Path, target: Target, choose: ChoosePython | None) -> Requirements:
    from envpack.requirements.parsing import parse_toml
    from envpack.requirements.pylock import read_pylock
    from envpack.requirements.pyproject import read_pyproject

    content = parse_toml(text, path)
    if "lock-version" in content or path.name.startswith("pylock."):
        return read_pylock(content, text, path, target, choose)
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
    return read_conda_environment(content, text, target)
