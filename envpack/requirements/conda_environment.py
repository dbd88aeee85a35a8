"""``environment.yml`` of conda, and ``conda.yaml`` of MLflow, which is the same."""

from __future__ import annotations

import re

from envpack.requirements.model import Requirements
from envpack.requirements.pip_file import PipReader
from envpack.requirements.places import CREDENTIALS_HINT, is_url, path_of
from envpack.requirements.problem import Location, shown
from envpack.requirements.python_version import only_minor
from envpack.requirements.target import Target
from envpack.requirements.yaml_file import YamlTable
from envpack.support.redaction import has_secret

_KNOWN = {"name", "channels", "dependencies", "prefix", "variables", "platforms"}
_HINT = "write it like dependencies: [python=3.10, numpy, {pip: [pillow]}]"
_NAME = re.compile(r"(?=.*[a-z])[a-z0-9_][\w.-]*")
_ONE_PYTHON = re.compile(r"\s*(?:==?|\s)\s*(\d+\.\d+)(?:\.[\w*]+)*(?:\s*=\s*[\w.*]+)?")


def read_conda_environment(content: YamlTable, target: Target) -> Requirements:
    """Read an environment file of conda.

    Args:
        content: the file.
        target: what it is read for; a file that says its ``platforms`` must have this one.

    Raises:
        InputError: it says something that envpack does not understand, or would have to leave out.

    """
    content.refuse_unknown(_KNOWN)
    _refuse_variables(content)
    _check_platforms(content, target)
    conda, python, pip = [], "", PipReader()
    for value, spot in content.items("dependencies"):
        if isinstance(value, YamlTable):
            _read_pip(value, pip)
            continue
        if not isinstance(value, str) or not _NAME.fullmatch(_name(value)):
            raise spot.error(f"{_said(value)} is not the name of a package", hint=_HINT)
        if _name(value) == "python":
            python = _python_minor(value, spot)
        elif _name(value) != "pip":  # uv installs the pip part, so pip itself is not needed
            conda.append(" ".join(value.split()))
    path = content.spot.path
    return pip.requirements(
        conda=tuple(conda), python=python, channels=_channels(content), source=path, files=(path, *pip.files)
    )


def _said(value: object) -> str:
    return shown(value) if isinstance(value, str) else "what is neither text nor a list called pip"


def _refuse_variables(content: YamlTable) -> None:
    variables = content.table("variables")
    if variables.values:
        raise content.get("variables")[1].error(
            f"the variable {shown(next(iter(variables.values)))} would be lost: a server need not run the environment's"
            " activation",
            hint="set it in the model's initialize() or where the server is started, and remove variables",
        )


def _check_platforms(content: YamlTable, target: Target) -> None:
    named = [name for name, _ in content.texts("platforms")]
    if named and target.platform not in named:
        raise content.get("platforms")[1].error(
            f"the file is not for {target.platform}, only for {shown(', '.join(named))}",
            hint="add the platform, or build for one of these",
        )


def _channels(content: YamlTable) -> tuple[str, ...]:
    """Channels in their order; ``nodefaults`` means that no others are wanted, and there never are any."""
    found = []
    for name, spot in content.texts("channels"):
        if has_secret(name):
            raise spot.error("the channel carries a password or a token", hint=CREDENTIALS_HINT)
        if name.startswith(("./", "../")) and not is_url(name):
            found.append(str(path_of(name, spot.path.parent.absolute())))
        elif not name.strip():
            raise spot.error("a channel has no name", hint="write it like channels: [conda-forge]")
        elif name != "nodefaults":
            found.append(name.strip())
    return tuple(dict.fromkeys(found))


def _name(spec: str) -> str:
    return re.split(r"[\s=<>!~\[]", spec.strip().rpartition("::")[2], maxsplit=1)[0].lower()


def _python_minor(spec: str, spot: Location) -> str:
    wanted = spec.strip().rpartition("::")[2].strip()[len("python") :].rstrip()
    if not wanted:
        return ""
    match = _ONE_PYTHON.fullmatch(wanted)
    if match:
        return match[1]
    try:
        minor = only_minor(wanted)
    except ValueError:
        minor = ""
    if not minor:
        raise spot.error(f"{shown(spec)} does not name one Python version", hint="write it like python=3.10")
    return minor


def _read_pip(entry: YamlTable, reader: PipReader) -> None:
    if set(entry.values) != {"pip"}:
        raise entry.spot.error("a table in dependencies must be a list called pip", hint=_HINT)
    for text, spot in entry.texts("pip"):
        reader.read_lines(text, spot)
