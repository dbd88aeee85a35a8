"""Runs of uv: isolated from the user's Python settings, without secrets on the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from envpack.support.errors import EnvironmentBuildError
from envpack.support.installation import repair_command
from envpack.support.isolation import clean_environment
from envpack.support.pip_settings import pip_indexes
from envpack.support.processes import CompletedProcess, run
from envpack.support.redaction import redact
from envpack.support.temp_dirs import temp_dir

NO_VARIABLES: Mapping[str, str] = {}
_NO_PROJECT = Path("/")  # working folder of uv, so that it reads no project's settings


def run_uv(
    arguments: Sequence[str | Path],
    *,
    variables: Mapping[str, str] = NO_VARIABLES,
    timeout: float | None = None,
    may_fetch_python: bool = False,
) -> CompletedProcess:
    """Run uv to its end.

    Args:
        arguments: for uv, without secrets.
        variables: added to its environment; may contain secrets.
        timeout: seconds.
        may_fetch_python: whether uv may download an interpreter, as the user's settings of uv allow it.

    Returns:
        The run, with passwords removed from its output.

    Raises:
        EnvironmentBuildError: ``uv-missing``.
        subprocess.TimeoutExpired: it ran longer than ``timeout`` seconds.
    """
    # uv never removes its lock files from the temporary folder, so it gets a folder that is removed.
    with temp_dir("uv") as folder:
        own = {"TMPDIR": str(folder), "UV_PREVIEW_FEATURES": "pylock"}
        if not may_fetch_python:
            own["UV_PYTHON_DOWNLOADS"] = "never"
        environment = clean_environment() | pip_indexes() | dict(variables) | own
        command = [_uv(), *arguments, "--no-progress", "--color", "never"]
        completed = run(command, env=environment, cwd=_NO_PROJECT, timeout=timeout)
    return CompletedProcess(completed.returncode, redact(completed.stdout), redact(completed.stderr))


def _uv() -> str:
    from uv import find_uv_bin

    try:
        return os.fspath(find_uv_bin())
    except FileNotFoundError as error:
        raise EnvironmentBuildError("uv is not installed", kind="uv-missing", hint=repair_command()) from error
