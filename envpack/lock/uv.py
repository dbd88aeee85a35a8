"""What uv says of pip requirements, as errors for the user."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from envpack.support.error_patterns import ErrorPattern, error_from_output
from envpack.support.errors import EnvironmentBuildError, StorageError
from envpack.support.processes import CompletedProcess
from envpack.support.text import normalise_name, one_line

_GLIBC_OF_UV = {"2.17", "2.28", *(f"2.{minor}" for minor in range(31, 41))}
_REQUIREMENT_PATTERNS = (
    re.compile(r"you require ([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?((?:[<>=!~]=?=?[\w.*]+,?)*)"),
    re.compile(r"(?:Failed to (?:download|build|fetch|parse)|Hash mismatch for)[:\s]+`?([A-Za-z0-9][\w.-]*)"),
)


def platform_name(machine: str, glibc: str) -> str:
    """The name in uv of a machine with this C library, for example ``x86_64-manylinux_2_35``."""
    known = glibc if glibc in _GLIBC_OF_UV else "2.28"
    return f"{machine}-manylinux_{known.replace('.', '_')}"


def uv_error(
    completed: CompletedProcess, requirements: Sequence[str], storage: Path
) -> EnvironmentBuildError | StorageError:
    """The error for a failed run of uv.

    Args:
        completed: the run, without secrets, as `run_uv` returns it.
        requirements: as the user wrote them.
        storage: a path on the disk that uv writes to, for a full disk.
    """
    lines = "\n".join(line for line in completed.last_lines().splitlines() if not line.startswith("Using "))
    failing = failing_requirement(completed.stderr, requirements)
    unresolvable = failing or "No solution found" in completed.stderr
    return error_from_output(
        (*_ERROR_PATTERNS, _UNRESOLVABLE if unresolvable else _UNKNOWN),
        completed.stderr,
        storage=storage,
        details=completed.stderr,
        about=f"pip requirement {failing!r}" if failing else "the pip requirements",
        requirement=failing or requirements[0],
        name=_name(failing or requirements[0]),
        reason=one_line(_reason(lines)),
        lines=lines,
    )


_ERROR_PATTERNS = (
    ErrorPattern(
        kind="hash-mismatch",
        pattern=r"Hash mismatch|hashes? (?:do|does) not match",
        message="{about}: the downloaded file does not have the locked hash",
        hint="lock again if you trust the new file; otherwise report it to the owner of the index",
    ),
    ErrorPattern(
        kind="index-forbidden",
        pattern=r"\b40[13] (?:Unauthorized|Forbidden)",
        message="{about}: the package index requires credentials",
        hint="put them into ~/.netrc, or into UV_INDEX_URL",
    ),
    ErrorPattern(
        kind="not-in-cache",
        pattern=r"network was disabled|connectivity is disabled",
        message="{about}: it is not in the cache, and the network is disabled",
        hint="build once with the network, or unset UV_OFFLINE",
    ),
    ErrorPattern(
        kind="index-unreachable",
        pattern=r"error sending request|Could not connect|dns error|Connection refused|timed out|\d+ retr|decoding",
        message="{about}: the package index does not answer",
        hint="check the network and the address; UV_INDEX_URL or PIP_INDEX_URL names another",
    ),
    ErrorPattern(
        kind="wheel-invalid",
        pattern=r"has an invalid package format|The wheel is invalid|Failed to extract archive|Failed to read from zip",
        message="{about}: its wheel is damaged or malformed: {reason}",
        hint="choose another version, or report it to its maker; a copy that was damaged on its way goes with: "
        "uv cache clean",
    ),
    ErrorPattern(
        kind="wheel-missing",
        pattern=r"has no usable wheels|building from source is disabled|no wheels with a matching",
        message="{about}: it has no wheel for this Python and platform",
        hint="choose a version that has a wheel for this Python, or build it from source: --allow-source {name}",
    ),
    ErrorPattern(
        kind="build-failed",
        pattern=r"Failed to build|The build backend returned an error|Call to `.*build_wheel` failed",
        message="{about}: it could not be built from source",
        hint="install a compiler and what the package needs to build, or choose a version that has a wheel",
    ),
)
_UNRESOLVABLE = ErrorPattern(
    kind="unresolvable",
    pattern="",
    message="pip requirement {requirement!r} cannot be resolved for this Python: {reason}",
    hint="check name and version; only wheels are used, so a version without a wheel for this Python is not found",
)
_UNKNOWN = ErrorPattern(
    kind="pip-failed",
    pattern="",
    message="uv could not install the pip requirements:\n{lines}",
    hint="check the network and the index; UV_INDEX_URL or PIP_INDEX_URL names another",
)


def _reason(lines: str) -> str:
    """The sentence with the reason on one line, without uv's frame around it and its hints below."""
    text = " ".join(lines.partition("\nhint:")[0].split())
    return text[max(0, text.find("Because")) :].rstrip(".")


def failing_requirement(message: str, requirements: Sequence[str]) -> str:
    """The requirement that a message of uv is about, as the user wrote it; ``""`` if none is recognised."""
    text = " ".join(message.split())
    for pattern in _REQUIREMENT_PATTERNS:
        for match in reversed(list(pattern.finditer(text))):
            for requirement in requirements:
                if _name(requirement) == normalise_name(match[1]):
                    return requirement
    named = (requirement for requirement in requirements if _is_named(requirement, text.lower()))
    return next(named, "")


def _is_named(requirement: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(_name(requirement))}(?![\w-])", text) is not None


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return normalise_name(match[0]) if match else requirement
