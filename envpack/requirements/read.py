"""What a model requires: read from ``environment.yml`` or ``requirements.txt``."""

from __future__ import annotations

import re
from pathlib import Path

from envpack.errors import InputError
from envpack.requirements.model import Requirements

FILE_NAMES = ("environment.yml", "environment.yaml", "requirements.txt")
_KNOWN_YAML_KEYS = {"name", "channels", "dependencies", "prefix", "variables"}
_YAML_HINT = "write it like dependencies: [python=3.10, numpy, {pip: [pillow]}]"
_CONDA_PYTHON = re.compile(r"^python\s*(?:==?|\s)\s*(\d+\.\d+)(?:\.[\d*]+)*$")


def find_requirements(model_folder: Path) -> Path | None:
    """The requirements file of a model: the first of `FILE_NAMES` in its folder, ``None`` if there is none."""
    candidates = (model_folder / name for name in FILE_NAMES)
    return next((file for file in candidates if file.is_file()), None)


def read_requirements(path: Path | None) -> Requirements:
    """Read a requirements file; the name says the format (``.yml`` and ``.yaml``: conda, else pip).

    Args:
        path: the file; ``None``, for a model without one, gives empty requirements.

    Raises:
        InputError: the file does not exist, or holds something that envpack does not understand; says where.

    """
    if path is None:
        return Requirements()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise _bad(
            "requirements file not found", path, hint="create it, or correct its name in envpack.toml"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(f"cannot be read: {error}", path, hint="it must be a file of UTF-8 text") from error
    if path.suffix in {".yml", ".yaml"}:
        return _read_conda(text, path)
    return Requirements(pip=_read_pip_lines(text, path), source=path, files=(path,))


def _bad(message: str, path: Path, line: int = 0, *, hint: str) -> InputError:
    return InputError(message, kind="bad-requirements", where=f"{path}:{line}" if line else str(path), hint=hint)


def _read_conda(text: str, path: Path) -> Requirements:
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise _bad(
            f"not valid YAML: {error}".splitlines()[0], path, mark.line + 1 if mark else 0, hint=_YAML_HINT
        ) from error
    if not isinstance(content, dict):
        raise _bad("must be a table with the key dependencies", path, hint=_YAML_HINT)
    unknown = sorted(str(key) for key in content if key not in _KNOWN_YAML_KEYS)
    if unknown:
        raise _bad(f"unknown key {unknown[0]!r}", path, hint=f"known: {', '.join(sorted(_KNOWN_YAML_KEYS))}")
    entries = content.get("dependencies") or []
    if not isinstance(entries, list):
        raise _bad("dependencies must be a list", path, hint=_YAML_HINT)
    conda, pip, python = [], [], ""
    for entry in entries:
        if isinstance(entry, dict):
            pip += _nested_pip(entry, path)
        elif not isinstance(entry, str) or not entry.strip():
            raise _bad(f"dependency {entry!r} must be text", path, hint=_YAML_HINT)
        elif _conda_name(entry) == "python":
            python = _python_minor(entry, path)
        elif _conda_name(entry) != "pip":  # uv installs the pip part, so pip itself is not needed
            conda.append(" ".join(entry.split()))
    return Requirements(tuple(conda), tuple(pip), python, path, files=(path,))


def _conda_name(spec: str) -> str:
    return re.split(r"[\s=<>!~\[]", spec.strip().rpartition("::")[2], maxsplit=1)[0].lower()


def _python_minor(spec: str, path: Path) -> str:
    bare = spec.strip().rpartition("::")[2]
    if bare == "python":
        return ""
    match = _CONDA_PYTHON.match(bare)
    if not match:
        raise _bad(f"{spec!r} does not name one Python version", path, hint="write it like python=3.10")
    return match[1]


def _nested_pip(entry: dict[object, object], path: Path) -> list[str]:
    lines = entry.get("pip")
    if set(entry) != {"pip"} or not isinstance(lines, list):
        raise _bad(f"dependency {entry!r} is neither a package nor a list called pip", path, hint=_YAML_HINT)
    return [_pip_requirement(str(line), path, 0) for line in lines]


def _read_pip_lines(text: str, path: Path) -> tuple[str, ...]:
    joined = re.sub(r"\\\n", " ", text)
    found = []
    for number, line in enumerate(joined.splitlines(), start=1):
        bare = re.sub(r"(^|\s)#.*$", "", line).strip()
        if bare:
            found.append(_pip_requirement(bare, path, number))
    return tuple(found)


def _pip_requirement(text: str, path: Path, line: int) -> str:
    from packaging.requirements import InvalidRequirement, Requirement

    if text.startswith("-") or " --" in text:
        option = next(word for word in text.split() if word.startswith("-")).split("=")[0]
        raise _bad(
            f"option {option!r} is not supported",
            path,
            line,
            hint="list the packages themselves; set the index with UV_INDEX_URL or PIP_INDEX_URL",
        )
    try:
        return str(Requirement(text))
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise _bad(f"{text!r} is not a requirement: {reason}", path, line, hint="write it like numpy<2") from error
