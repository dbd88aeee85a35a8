"""What the files of an artifact say, before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from envpack.requirements.format import find_requirements, read_requirements
from envpack.requirements.model import Requirements
from envpack.requirements.target import allows_minor
from envpack.settings.pythons import SUPPORTED
from envpack.support.errors import InputError
from envpack.support.folders import whole_path

Kind = Literal["mlflow", "sklearn", "onnx", "function"]
Files = Mapping[str, str | Path]


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A trained model."""

    kind: Kind  # what it is
    title: str  # what it is, for people
    source: Path  # the file or folder
    files: Mapping[str, Path]  # what belongs into the version folder: the path there, and the file or folder to copy
    requirements: Files  # what belongs into the model's folder: the name, and the text or the file to copy
    details: Mapping[str, Any] = field(default_factory=dict)  # more for `code/ask.py` and for `model_code`
    platform: str = ""  # of the backend that serves it without Python, ``""`` for a Python model
    notes: tuple[str, ...] = ()  # what the user should know


# How a model that is none of these becomes one of them.
IN_A_PACKAGE = (
    "put it into a package, beside an __init__.py with a function that loads and calls it, and name that:"
    " package:function"
)
OTHER_MODELS = (
    "save a model of another library with MLflow, such as mlflow.pytorch.save_model(model, FOLDER, signature=…), or as"
    f" .onnx; or {IN_A_PACKAGE}"
)


def bad_artifact(what: str, fix: str, where: Path | str) -> InputError:
    return InputError("bad-artifact", what, fix, str(where))


def python_env(python: str, lines: Sequence[str]) -> Files:
    """Lines of requirements as ``python_env.yaml``, or as ``requirements.txt`` if no Python is named."""
    import yaml

    if not python:
        return {"requirements.txt": "".join(f"{line}\n" for line in lines)}
    return {"python_env.yaml": yaml.safe_dump({"python": python, "dependencies": list(lines)}, sort_keys=False)}


def requirements_in(folder: Path, python: str) -> Files:
    file = find_requirements(folder)
    if file is None:
        return {}

    def any_python(found: Requirements) -> str:  # a lock of several is read for one of them
        several = (f"3.{sys.version_info.minor}", *SUPPORTED)
        return python or next((minor for minor in several if allows_minor(found.pythons, minor)), "")

    found = read_requirements(file, python=any_python)
    if file.name == "conda.yaml" and not found.conda and (folder / "python_env.yaml").is_file():
        file = folder / "python_env.yaml"  # MLflow writes both, and this one needs no channel
        found = read_requirements(file, python=any_python)
    folder, files = whole_path(folder), sorted({*map(whole_path, (file, *found.files))})
    if outside := [one for one in files if not one.is_relative_to(folder)]:
        what = f"it includes {outside[0]}, which lies outside of its folder, and the model gets a copy of that alone"
        raise bad_artifact(what, f"copy that file into {folder}, and include it from there", file)
    copies = {str(one.relative_to(folder)): one for one in files}
    return copies if found.pythons or not python else {**copies, **python_env(python, (f"-r {file.name}",))}
