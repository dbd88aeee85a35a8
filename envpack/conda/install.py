"""Locked conda packages → an installed prefix."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from envpack.conda.engine import (
    CREDENTIALS_HINT,
    ENGINE_HINT,
    FORBIDDEN_PATTERN,
    EngineError,
    as_request,
    run_engine,
)
from envpack.conda.settings import CondaSettings, Credentials
from envpack.requirements import CondaPackage, Target
from envpack.support.entry_locks import mark_used
from envpack.support.errors import EnvironmentBuildError, StorageError
from envpack.support.failures import ErrorPattern, error_from_output
from envpack.support.folders import cache_folder
from envpack.support.text import one_line

# The prefix in files of conda packages until an environment is placed. It is the same on every machine, so that equal
# packages give equal files, and longer than the path of any folder that replaces it.
PREFIX_PLACEHOLDER = "/opt/envpack/stand-in-for-the-prefix" + "_" * 164


def install_conda(
    packages: Sequence[CondaPackage],
    prefix: Path,
    target: Target,
    *,
    settings: CondaSettings,
    credentials: Credentials,
    cache: Path,
) -> None:
    """Install exactly these conda packages; files that contain their prefix contain `PREFIX_PLACEHOLDER`."""
    try:
        run_engine(
            {
                "operation": "install",
                "packages": [as_request(package) for package in packages],
                "prefix": str(prefix),
                "subdir": target.platform,
                "prefix_placeholder": PREFIX_PLACEHOLDER,
                "package_cache": str(cache_folder("conda-packages", cache)),
            },
            settings=settings,
            credentials=credentials,
        )
    except EngineError as error:
        raise _install_error(error, packages, prefix) from error
    for package in packages:
        mark_used(cache_folder("conda-packages", cache) / f"{package.name}-{package.version}-{package.build}")


def _install_error(
    error: EngineError, packages: Sequence[CondaPackage], prefix: Path
) -> EnvironmentBuildError | StorageError:
    message = " ".join(str(error).split())
    named = next((package for package in packages if _names(message, package)), None)
    return error_from_output(
        _ERROR_PATTERNS,
        message,
        storage=prefix.parent,
        where=named.url if named else "",
        package=f"conda package {named.name} {named.version}" if named else "a conda package",
        reason=one_line(message),
    )


def _names(message: str, package: CondaPackage) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(package.name)}(?![\w])", message) is not None


_ERROR_PATTERNS = (
    ErrorPattern(
        kind="hash-mismatch",
        pattern=r"(?i)hash mismatch|mismatch.*(?:sha256|md5)|(?:sha256|md5).*mismatch",
        message="{package}: the downloaded file does not have the locked hash: {reason}",
        hint="lock again if you trust the new file; otherwise report it to the owner of the channel",
    ),
    ErrorPattern(
        kind="channel-forbidden",
        pattern=FORBIDDEN_PATTERN,
        message="{package}: the channel requires credentials",
        hint=CREDENTIALS_HINT,
    ),
    ErrorPattern(
        kind="channel-unreachable",
        pattern=r"No such file|not found|404|error sending request|failed to fetch|timed? ?out|connect",
        message="{package} cannot be downloaded: {reason}",
        hint="check the network, and that the channel still has the package; packages in the cache need neither",
    ),
    ErrorPattern(
        kind="engine-failed", pattern="", message="{package} could not be installed: {reason}", hint=ENGINE_HINT
    ),
)
