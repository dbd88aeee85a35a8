"""Detects what kind of environment a folder is: conda, virtual, or neither."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.conda import check_minor
from envpack.environment.records import CondaRecord, conda_record_files, read_conda_record
from envpack.requirements import host_platform
from envpack.support.bounded_reading import read_json, read_text
from envpack.support.errors import EnvironmentBuildError, InputError

_MOST_SETTINGS = 1 << 20  # bytes
_HINT = "give the folder of a conda or virtual environment, which contains conda-meta or pyvenv.cfg"


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """An environment to copy.

    Attributes:
        root: its folder, absolute.
        kind: ``"virtual"`` for what venv, virtualenv and uv make.
        minor: Python minor version.
        version: full version from the environment's own metadata; ``""`` if it has none.
        platform: for example ``"linux-64"``.
        home: folder of the interpreter that a virtual environment was created from; ``None`` for conda's.
        records: conda's records of the packages.
    """

    root: Path
    kind: Literal["conda", "virtual"]
    minor: str
    version: str
    platform: str
    home: Path | None = None
    records: tuple[CondaRecord, ...] = ()


def detect_prefix(root: Path) -> Prefix:
    """Detect the kind of environment in a folder."""
    root = root.absolute()
    if (root / "conda-meta").is_dir():
        found = _conda(root)
    elif os.path.lexists(root / "pyvenv.cfg"):
        found = _virtual(root)
    else:
        reason = "neither a conda environment nor a virtual one" if root.is_dir() else "there is no such folder"
        raise InputError(reason, kind="not-a-prefix", where=str(root), hint=_HINT)
    check_minor(found.minor, where=str(root))
    return found


def _conda(root: Path) -> Prefix:
    records = tuple(_record(file) for file in conda_record_files(root))
    python = next((record for record in records if record["name"] == "python"), None)
    if python is None:
        raise _unsupported("this conda environment has no Python", root, "install one: conda install python")
    if re.search(r"pypy|graalpy", str(python.get("build", ""))):
        raise _unsupported(
            "its Python is not CPython", root, "use an environment with CPython, which Triton's stub requires"
        )
    version = str(python["version"])
    platform = str(python.get("subdir") or host_platform())
    return Prefix(
        root=root,
        kind="conda",
        minor=".".join(version.split(".")[:2]),
        version=version,
        platform=platform,
        records=records,
    )


def _record(file: Path) -> CondaRecord:
    try:
        return read_conda_record(file)
    except EnvironmentBuildError as error:
        raise _damaged(file) from error


def _damaged(file: Path) -> InputError:
    return InputError(
        "this record of an installed package cannot be read",
        kind="not-a-prefix",
        where=str(file),
        hint="repair the environment: reinstall that package",
    )


def _virtual(root: Path) -> Prefix:
    settings = _settings(root / "pyvenv.cfg")
    if (root / "Scripts").is_dir() and not (root / "bin").is_dir():
        raise InputError(
            "this virtual environment was made on Windows",
            kind="other-platform",
            where=str(root),
            hint="make it on Linux, or build from its requirements: pip freeze writes them",
        )
    if settings.get("include-system-site-packages", "").lower() == "true":
        raise _unsupported(
            "it uses packages of the system (include-system-site-packages)",
            root,
            "create one without --system-site-packages, with all packages that the model needs",
        )
    if settings.get("implementation", "cpython").lower() != "cpython" or list(root.glob("lib/pypy3*")):
        raise _unsupported(
            "its Python is not CPython", root, "use an environment with CPython, which Triton's stub requires"
        )
    folders = sorted(folder.parent.name for folder in root.glob("lib/python3.*/site-packages"))
    if not settings.get("home") or len(folders) != 1:
        missing = (
            "pyvenv.cfg does not name the folder of its Python" if folders else "it has no lib/python3.*/site-packages"
        )
        missing = "it has site-packages of several Pythons" if len(folders) > 1 else missing
        raise InputError(missing, kind="not-a-prefix", where=str(root), hint=_HINT)
    version = re.match(r"[\d.]+", settings.get("version_info", settings.get("version", "")))
    minor = folders[0].removeprefix("python")
    home = Path(settings["home"])
    return Prefix(
        root=root,
        kind="virtual",
        minor=minor,
        version=version[0].rstrip(".") if version else "",
        platform=host_platform(),
        home=home,
    )


def _settings(file: Path) -> dict[str, str]:
    try:
        lines = read_text(file, most=_MOST_SETTINGS, errors="replace").splitlines()
    except OSError as error:
        raise InputError(
            f"it cannot be read: {error.strerror}", kind="not-a-prefix", where=str(file), hint=_HINT
        ) from error
    pairs = (line.partition("=") for line in lines)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _unsupported(reason: str, root: Path, hint: str) -> InputError:
    return InputError(reason, kind="prefix-unsupported", where=str(root), hint=hint)


def activation_variables(root: Path) -> tuple[str, ...]:
    """The names of the variables that conda's activation sets; never their values, which may be secret.

    Those of ``conda env config vars`` are in ``conda-meta/state``, those of packages in ``etc/conda/env_vars.d``. Files
    that cannot be read are ignored, as conda does.
    """
    found = set(_table(_table(_read(root / "conda-meta/state")).get("env_vars")))
    for file in (root / "etc/conda/env_vars.d").glob("*.json"):
        found |= set(_table(_read(file)))
    return tuple(sorted(found))


def _read(file: Path) -> object:
    try:
        return read_json(file)
    except (OSError, ValueError, RecursionError):
        return None


def _table(content: object) -> dict[str, object]:
    return content if isinstance(content, dict) else {}
