"""Starting uv: always isolated from the user's Python settings, never with a secret on its command line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from envpack.support.error_patterns import ErrorPattern, error_from_output
from envpack.support.errors import EnvironmentBuildError
from envpack.support.installation import repair_command
from envpack.support.isolation import clean_environment
from envpack.support.processes import CompletedProcess, run
from envpack.support.redaction import redact
from envpack.support.temp_dirs import temp_dir
from envpack.support.text import normalise_name, one_line

NO_VARIABLES: Mapping[str, str] = {}
_GLIBC_KNOWN_TO_UV = {"2.17", "2.28", *(f"2.{minor}" for minor in range(31, 41))}
_CULPRITS = (
    re.compile(r"you require ([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?((?:[<>=!~]=?=?[\w.*]+,?)*)"),
    re.compile(r"(?:Failed to (?:download|build|fetch|parse)|Hash mismatch for)[:\s]+`?([A-Za-z0-9][\w.-]*)"),
)
_NO_PROJECT = Path("/")  # so that no project's settings count


def run_uv(arguments: Sequence[str | Path], *, variables: Mapping[str, str] = NO_VARIABLES) -> CompletedProcess:
    """Run uv to its end; whatever it says comes without passwords.

    Args:
        arguments: for uv.
        variables: additions to its environment, where secrets may be.

    Raises:
        EnvironmentBuildError: ``uv-missing``.

    """
    # uv leaves its lock files in the temporary folder for good, so it gets one that goes away.
    with temp_dir("uv") as scratch:
        own = {"TMPDIR": str(scratch), "UV_PREVIEW_FEATURES": "pylock", "UV_PYTHON_DOWNLOADS": "never"}
        environment = clean_environment() | dict(variables) | own
        ended = run(
            [_uv(), *arguments, "--no-progress", "--color", "never"], env=environment, cwd=Path("/")
        )  # no project's settings
    return CompletedProcess(ended.returncode, redact(ended.stdout), redact(ended.stderr))


def platform_name(machine: str, glibc: str) -> str:
    """What uv calls a machine with this C library, for example ``x86_64-manylinux_2_35``."""
    known = glibc if glibc in _GLIBC_KNOWN_TO_UV else "2.28"
    return f"{machine}-manylinux_{known.replace('.', '_')}"


def uv_error(ended: CompletedProcess, requirements: Sequence[str], where: Path) -> EnvironmentBuildError:
    """The error for what uv has said; ``requirements`` as the user wrote them, ``where`` is what could be full."""
    words = "\n".join(line for line in ended.last_lines().splitlines() if not line.startswith("Using "))
    guilty = failing_requirement(ended.stderr, requirements)
    return error_from_output(
        (*_CAUSES, _UNRESOLVABLE if guilty or "No solution found" in ended.stderr else _FAILED),
        ended.stderr,
        full=where,
        details=ended.stderr,
        about=f"pip requirement {guilty!r}" if guilty else "the pip requirements",
        requirement=guilty or requirements[0],
        reason=one_line(_reason(words)),
        words=words,
    )


_CAUSES = (
    ErrorPattern(
        kind="hash-mismatch",
        pattern=r"Hash mismatch|hashes? (?:do|does) not match",
        says="{about}: the downloaded file is not the one that its hash names",
        hint="lock again if you trust the new file, else ask who runs the index",
    ),
    ErrorPattern(
        kind="index-forbidden",
        pattern=r"\b40[13] (?:Unauthorized|Forbidden)",
        says="{about}: the package index asks for credentials",
        hint="put them into ~/.netrc, or into UV_INDEX_URL",
    ),
    ErrorPattern(
        kind="not-in-cache",
        pattern=r"network was disabled|connectivity is disabled",
        says="{about}: it is not in the cache, and the network may not be used",
        hint="build once with the network, or take UV_OFFLINE away",
    ),
    ErrorPattern(
        kind="index-unreachable",
        pattern=r"error sending request|Could not connect|dns error|Connection refused|timed out|\d+ retr|decoding",
        says="{about}: the package index does not answer",
        hint="check the network and the address; UV_INDEX_URL or PIP_INDEX_URL names another",
    ),
    ErrorPattern(
        kind="build-failed",
        pattern=r"Failed to build|The build backend returned an error|Call to `.*build_wheel` failed",
        says="{about}: it could not be built from its source",
        hint="install a compiler and what the package needs to build, or take a version that has a wheel",
    ),
)
_UNRESOLVABLE = ErrorPattern(
    kind="unresolvable",
    pattern="",
    says="pip requirement {requirement!r} cannot be resolved for this Python: {reason}",
    hint="check name and version; only wheels are used, so a version without a wheel for this Python is not found",
)
_FAILED = ErrorPattern(
    kind="pip-failed",
    pattern="",
    says="uv could not install the pip requirements:\n{words}",
    hint="check the network and the index; UV_INDEX_URL or PIP_INDEX_URL names another",
)


def _uv() -> str:
    from uv import find_uv_bin

    try:
        return os.fspath(find_uv_bin())
    except FileNotFoundError as error:
        raise EnvironmentBuildError("uv is not installed", kind="uv-missing", hint=repair_command()) from error


def _reason(words: str) -> str:
    """The sentence that says why, in one line, without uv's frame around it and its hints below."""
    text = " ".join(words.partition("\nhint:")[0].split())
    return text[max(0, text.find("Because")) :].rstrip(".")


def failing_requirement(message: str, requirements: Sequence[str]) -> str:
    """The requirement that uv complains of, as the user wrote it, or ``""``."""
    text = " ".join(message.split())
    for pattern in _CULPRITS:
        for match in reversed(list(pattern.finditer(text))):
            for requirement in requirements:
                if _name(requirement) == normalise_name(match[1]):
                    return requirement
    named = [one for one in requirements if re.search(rf"(?<![\w.-]){re.escape(_name(one))}(?![\w-])", text.lower())]
    return named[0] if named else ""


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return normalise_name(match[0]) if match else requirement
