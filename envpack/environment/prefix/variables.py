"""Variables that conda's own activation would set, beside the scripts that packages bring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def activation_variables(root: Path) -> tuple[str, ...]:
    """The names of the variables of a conda environment; never their values, which may be secret.

    Those of ``conda env config vars`` are in ``conda-meta/state``, those of packages in ``etc/conda/env_vars.d``. What
    cannot be read conda does not set either.
    """
    found = set(_table(_table(_read(root / "conda-meta/state")).get("env_vars")))
    for file in (root / "etc/conda/env_vars.d").glob("*.json"):
        found |= set(_table(_read(file)))
    return tuple(sorted(found))


def _read(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _table(told: object) -> dict[str, Any]:
    return told if isinstance(told, dict) else {}
