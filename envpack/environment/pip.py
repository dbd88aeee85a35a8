"""The pip part of an environment: installed by uv, from wheels only."""

from __future__ import annotations

import platform
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from envpack.environment.disk import FULL_TEXT, disk_full
from envpack.environment.isolation import clean_environment
from envpack.environment.names import normalised
from envpack.errors import EnvironmentBuildError
from envpack.process import Finished, run

_GLIBC_KNOWN_TO_UV = {"2.17", "2.28", *(f"2.{minor}" for minor in range(31, 41))}
_CULPRITS = (
    re.compile(r"you require ([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?((?:[<>=!~]=?=?[\w.*]+,?)*)"),
    re.compile(r"Failed to (?:download|build|fetch|parse)[:\s]+`?([A-Za-z0-9][\w.-]*)"),
)


def install_pip(requirements: Sequence[str], prefix: Path, *, glibc: str) -> None:
    """Install requirements into a prefix that holds a Python; nothing of the user's Python settings gets in.

    Args:
        requirements: in the notation of PEP 508; none means nothing to do.
        prefix: root of the environment.
        glibc: version of the target's C library, which decides what wheels are allowed.

    Raises:
        EnvironmentBuildError: ``unresolvable``, ``disk-full`` or ``pip-failed``; says the requirement and uv's words.

    """
    if not requirements:
        return
    command: list[str | Path] = [
        *(_uv(), "pip", "install", "--python", prefix / "bin" / "python", "--only-binary", ":all:", "--no-progress"),
        *("--color", "never", "--python-platform", _platform(glibc), "--", *requirements),
    ]
    # uv leaves its lock files in the temporary folder for good, so it gets one that goes away.
    with tempfile.TemporaryDirectory(prefix="envpack-uv-") as scratch:
        ended = run(command, env=clean_environment() | {"TMPDIR": scratch}, cwd=Path("/"))  # no project's settings
    if ended.returncode != 0:
        raise _explained(ended, requirements, prefix)


def _uv() -> str:
    from uv import find_uv_bin

    try:
        return str(find_uv_bin())
    except FileNotFoundError as error:
        raise EnvironmentBuildError("uv is not installed", kind="uv-missing", hint="pip install uv") from error


def _platform(glibc: str) -> str:
    known = glibc if glibc in _GLIBC_KNOWN_TO_UV else "2.28"
    return f"{platform.machine()}-manylinux_{known.replace('.', '_')}"


def _explained(ended: Finished, requirements: Sequence[str], prefix: Path) -> EnvironmentBuildError:
    if FULL_TEXT in ended.stderr:
        return disk_full(prefix.parent)
    words = "\n".join(line for line in ended.last_lines().splitlines() if not line.startswith("Using Python"))
    guilty = guilty_requirement(ended.stderr, requirements)
    if "No solution found" not in ended.stderr and not guilty:
        return EnvironmentBuildError(
            f"uv could not install the pip requirements:\n{words}",
            kind="pip-failed",
            hint="check the network and the index; UV_INDEX_URL or PIP_INDEX_URL names another",
        )
    return EnvironmentBuildError(
        f"pip requirement {guilty or requirements[0]!r} cannot be resolved for this Python: {_reason(words)}",
        kind="unresolvable",
        hint="check name and version; only wheels are used, so a version without a wheel for this Python is not found",
    )


def _reason(words: str) -> str:
    """The sentence that says why, in one line, without uv's frame around it and its hints below."""
    text = " ".join(words.partition("\nhint:")[0].split())
    return text[max(0, text.find("Because")) :].rstrip(".")


def guilty_requirement(message: str, requirements: Sequence[str]) -> str:
    """The requirement that uv complains of, as the user wrote it, or ``""``."""
    text = " ".join(message.split())
    for pattern in _CULPRITS:
        for match in reversed(list(pattern.finditer(text))):
            for requirement in requirements:
                if _name(requirement) == normalised(match[1]):
                    return requirement
    named = [one for one in requirements if re.search(rf"(?<![\w.-]){re.escape(_name(one))}(?![\w-])", text.lower())]
    return named[0] if named else ""


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return normalised(match[0]) if match else requirement
