"""``python_env.yaml`` of MLflow."""

from __future__ import annotations

import re

from envpack.requirements.model import Requirements
from envpack.requirements.pip_file import PipReader
from envpack.requirements.yaml_file import YamlTable

_KEYS = {"python", "build_dependencies", "dependencies"}


def is_python_env(content: YamlTable) -> bool:
    """Whether a YAML file is one; conda's files name Python among the dependencies."""
    return "python" in content or "build_dependencies" in content


def read_python_env(content: YamlTable) -> Requirements:
    """Read the Python environment of an MLflow model.

    ``build_dependencies`` are checked but not installed: they build packages from source, and envpack takes wheels.

    Raises:
        InputError: it says something that envpack does not understand.

    """
    content.refuse_unknown(_KEYS)
    content.texts("build_dependencies")
    version = content.text("python", "").strip()
    match = re.fullmatch(r"(\d+\.\d+)(\.\d+)?", version)
    if version and not match:
        raise content.get("python")[1].error("python must be one version", hint="write it like python: 3.10.13")
    reader = PipReader()
    for text, spot in content.texts("dependencies"):
        reader.read_lines(text, spot)
    path = content.spot.path
    return reader.requirements(python=match[1] if match else "", source=path, files=(path, *reader.files))
