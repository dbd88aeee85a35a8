"""Locked conda packages → an installed prefix."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envpack.conda.engine import (
    CREDENTIALS_HINT,
    ENGINE_HINT,
    FORBIDDEN_PATTERN,
    EngineError,
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

_PATIENCE = 3600  # seconds for the download of a package


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
    packages = [_verified(package) for package in packages]
    downloads = _downloads(packages, cache)
    try:
        run_engine(
            "install",
            settings=settings,
            credentials=credentials,
            packages=packages,
            prefix=str(prefix),
            subdir=target.platform,
            prefix_placeholder=PREFIX_PLACEHOLDER,
            package_cache=str(downloads),
            patience=_PATIENCE,
        )
    except EngineError as error:
        raise _install_error(error, packages, prefix) from error
    if downloads != cache_folder("conda-packages", cache):
        mark_used(downloads)
        return
    for package in packages:
        mark_used(downloads / f"{package.name}-{package.version}-{package.build}")


def is_locked_file(package: CondaPackage, file: Path) -> bool:
    """Whether a file has the hash of a package; without a hash, every file has."""
    return not _difference(package, file)


def _verified(package: CondaPackage) -> CondaPackage:
    """The package, of a local channel with its SHA-256; the engine verifies only files that it downloads."""
    address = urlsplit(package.url)
    file = Path(unquote(address.path))
    if address.scheme != "file" or not file.is_file():
        return package  # the engine names a file that is not there
    difference = _difference(package, file)
    if difference:
        what = f"conda package {package.name} {package.version}: the file does not have the locked hash: {difference}"
        fix = "lock again if you trust the file, or put the locked one back"
        raise EnvironmentBuildError("hash-mismatch", what, fix, str(file))
    return package if package.sha256 else dataclasses.replace(package, sha256=_digest(file, "sha256"))


def _difference(package: CondaPackage, file: Path) -> str:
    """How the hash of a file differs from that of a package, ``""`` if it does not."""
    algorithm, locked = ("sha256", package.sha256) if package.sha256 else ("md5", package.md5)
    found = _digest(file, algorithm) if locked else ""
    return "" if found == locked.lower() else f"its {algorithm} is {found}, not {locked}"


def _digest(file: Path, algorithm: str) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, algorithm).hexdigest()


def _downloads(packages: Sequence[CondaPackage], cache: Path) -> Path:
    """The folder in which the engine keeps packages.

    It finds them by name, version, build and SHA-256. Packages without a SHA-256 share no folder with others, of which
    one with the same name may come from another channel.
    """
    folder = cache_folder("conda-packages", cache)
    unknown = sorted([package.url, package.md5] for package in packages if not package.sha256)
    return folder / f"md5-{hashlib.sha256(json.dumps(unknown).encode()).hexdigest()[:32]}" if unknown else folder


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
