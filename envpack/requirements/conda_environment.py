"""Environment files: ``environment.yml`` of conda, and ``conda.yaml`` and ``python_env.yaml`` of MLflow."""

from __future__ import annotations

import re

from envpack.requirements.location import CREDENTIALS_HINT, Location, is_url, local_path, quote
from envpack.requirements.model import Requirements
from envpack.requirements.parsing import YamlTable
from envpack.requirements.pip_file import PipReader
from envpack.requirements.target import Target, single_minor
from envpack.support.redaction import has_secret

_CONDA_KEYS = {"name", "channels", "dependencies", "prefix", "variables", "platforms"}
_PYTHON_ENV_KEYS = {"python", "build_dependencies", "dependencies"}
_HINT = "write it like dependencies: [python=3.10, numpy, {pip: [pillow]}]"
_NAME = re.compile(r"(?=.*[a-z])[a-z0-9_][\w.-]*")
_EXACT_PYTHON = re.compile(r"\s*(?:==?|\s)\s*(\d+\.\d+)(?:\.[\w*]+)*(?:\s*=\s*[\w.*]+)?")


def read_conda_environment(content: YamlTable, target: Target) -> Requirements:
    """Read an environment file of conda.

    Args:
        content: the parsed file.
        target: if the file has a list ``platforms``, this platform must be in it.

    Raises:
        InputError: the file has a key, dependency or variable that envpack does not support.
    """
    content.refuse_unknown(_CONDA_KEYS)
    _refuse_variables(content)
    _check_platforms(content, target)
    conda, python, pip = [], "", PipReader()
    for value, location in content.items("dependencies"):
        if isinstance(value, YamlTable):
            _read_pip(value, pip)
            continue
        if not isinstance(value, str) or not _NAME.fullmatch(_name(value)):
            what = quote(value) if isinstance(value, str) else "an entry that is neither text nor a list called pip"
            raise location.error(f"{what} is not the name of a package", hint=_HINT)
        if _name(value) == "python":
            python = _python_minor(value, location)
        elif _name(value) != "pip":  # uv installs the pip part, so pip itself is not needed
            conda.append(" ".join(value.split()))
    path = content.location.path
    return pip.requirements(
        conda=tuple(conda), python=python, channels=_channels(content), source=path, files=(path, *pip.files)
    )


def _refuse_variables(content: YamlTable) -> None:
    variables = content.table("variables")
    if variables.values:
        raise content.get("variables")[1].error(
            f"the variable {quote(next(iter(variables.values)))} would be lost: some servers do not run the"
            " environment's activation",
            hint="set it in the model's initialize() or where the server is started, and remove variables",
        )


def _check_platforms(content: YamlTable, target: Target) -> None:
    platforms = [name for name, _ in content.texts("platforms")]
    if platforms and target.platform not in platforms:
        raise content.get("platforms")[1].error(
            f"the file is not for {target.platform}, only for {quote(', '.join(platforms))}",
            hint="add the platform, or build for one of these",
        )


def _channels(content: YamlTable) -> tuple[str, ...]:
    """Channels in their order, without ``nodefaults``: envpack never adds channels of its own."""
    found = []
    for name, location in content.texts("channels"):
        if has_secret(name):
            raise location.error("the channel contains a password or a token", hint=CREDENTIALS_HINT)
        if name.startswith(("./", "../")) and not is_url(name):
            found.append(str(local_path(name, location.path.parent.absolute())))
        elif not name.strip():
            raise location.error("a channel has no name", hint="write it like channels: [conda-forge]")
        elif name != "nodefaults":
            found.append(name.strip())
    return tuple(dict.fromkeys(found))


def _name(spec: str) -> str:
    return re.split(r"[\s=<>!~\[]", spec.strip().rpartition("::")[2], maxsplit=1)[0].lower()


def _python_minor(spec: str, location: Location) -> str:
    version = spec.strip().rpartition("::")[2].strip()[len("python") :].rstrip()
    if not version:
        return ""
    match = _EXACT_PYTHON.fullmatch(version)
    if match:
        return match[1]
    try:
        minor = single_minor(version)
    except ValueError:
        minor = ""
    if not minor:
        raise location.error(f"{quote(spec)} does not name one Python version", hint="write it like python=3.10")
    return minor


def _read_pip(entry: YamlTable, reader: PipReader) -> None:
    if set(entry.values) != {"pip"}:
        raise entry.location.error("a table in dependencies must be a list called pip", hint=_HINT)
    for text, location in entry.texts("pip"):
        reader.read_lines(text, location)


def is_python_env(content: YamlTable) -> bool:
    """Whether a YAML file is MLflow's ``python_env.yaml``; conda's files list Python among the dependencies."""
    return "python" in content or "build_dependencies" in content


def read_python_env(content: YamlTable) -> Requirements:
    """Read the ``python_env.yaml`` of an MLflow model.

    ``build_dependencies`` are checked but not installed: they are for building from source, and envpack installs
    wheels.

    Raises:
        InputError: the file has a key or a value that envpack does not support.
    """
    content.refuse_unknown(_PYTHON_ENV_KEYS)
    content.texts("build_dependencies")
    version = content.text("python", "").strip()
    match = re.fullmatch(r"(\d+\.\d+)(\.\d+)?", version)
    if version and not match:
        raise content.get("python")[1].error("python must be one version", hint="write it like python: 3.10.13")
    reader = PipReader()
    for text, location in content.texts("dependencies"):
        reader.read_lines(text, location)
    path = content.location.path
    return reader.requirements(python=match[1] if match else "", source=path, files=(path, *reader.files))
