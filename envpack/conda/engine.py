"""The embedded conda engine: one child process for each request; and locked packages → an installed prefix."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envpack.conda.extracted import damaged_extracted_again, folder_of
from envpack.conda.settings import CondaSettings, Credentials
from envpack.requirements.location import local_file
from envpack.requirements.model import CondaPackage
from envpack.requirements.target import Target
from envpack.support.bounded_reading import first_endless, read_json
from envpack.support.certificates import check_authorities
from envpack.support.connection_faults import UNTRUSTED, last_cause, network_hint, proxy_of, through
from envpack.support.entry_locks import mark_used
from envpack.support.errors import EnvironmentBuildError, StorageError, limit_said_in
from envpack.support.folders import cache_folder
from envpack.support.processes import ErrorPattern, clean_environment, error_from_output, how_ended, run
from envpack.support.progress import SILENT, Progress
from envpack.support.temp_dirs import temp_dir
from envpack.support.text import one_line

ENGINE_HINT = "install envpack again; if the error returns, remove the cache folder and build again"
FORBIDDEN_PATTERN = r"\b40[13]\b|Unauthorized|Forbidden"  # output of engines when a channel requires credentials
UNREADABLE_SETTINGS = ErrorPattern(
    kind="engine-failed",
    pattern="FileStorageError|(?:reading|parsing) configuration file",
    message="the conda engine cannot read a file of its settings or credentials: {reason}",
    hint="correct or remove that file, pixi's config.toml or credentials.json of rattler",
)
CREDENTIALS_HINT = "put them into ~/.netrc, the file named by RATTLER_AUTH_FILE, or the channel's address in .condarc"
# Each download has a limit of its own; this one is for all else that the engine waits for, such as a key ring.
_LIMIT = 4 * 3600.0  # seconds
_CHILD = Path(__file__).with_name("rattler_child.py")


class EngineError(Exception):
    """The engine rejected a request."""

    def __init__(self, type_name: str, message: str, culprits: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.type_name = type_name  # name of the engine's exception; the text of this exception is its message
        self.culprits = culprits  # numbers of the match specs that cannot be met together; empty if they are not known


def run_engine(
    operation: str,
    *,
    settings: CondaSettings | None = None,
    credentials: Credentials | None = None,
    **arguments: object,
) -> dict[str, Any]:
    with temp_dir("engine") as folder:
        request_file, result_file = folder / "request.json", folder / "result.json"
        request = {
            "parent": os.getpid(),
            "import_path": [part for part in sys.path if part],
            "operation": operation,
            "arguments": arguments,
        }
        request_file.write_text(json.dumps(request, default=vars), encoding="utf-8")  # packages by their fields
        environment = clean_environment() | dict(settings.variables if settings else {})
        if credentials:
            environment["RATTLER_AUTH_FILE"] = str(_credentials_file(folder, credentials, environment))
        _check_settings(environment)
        try:
            completed = run(
                [sys.executable, "-I", "-B", _CHILD, request_file, result_file], env=environment, timeout=_LIMIT
            )
        except subprocess.TimeoutExpired as error:
            what = f"the conda engine did not end within {_LIMIT:g} s"
            fix = "look at what it reads: its settings and credentials, a key ring, channels in folders of this machine"
            raise EnvironmentBuildError("engine-failed", what, fix) from error
        try:
            result: dict[str, Any] = read_json(result_file)
        except (OSError, ValueError) as error:
            how = how_ended(completed.returncode)
            what = f"the conda engine ended {how} and without a result: {completed.last_lines(4)}"
            failed = EnvironmentBuildError("engine-failed", what, ENGINE_HINT)
            raise completed.refused_by_system(folder) or failed from error
    if "error" in result:
        raise limit_said_in(completed.stderr) or EngineError(
            result["error_type"], result["error"], result.get("culprits", ())
        )
    return result


def _check_settings(environment: Mapping[str, str]) -> None:
    """Refuse what is no file where the engine reads its settings: it would wait for the end."""
    home = Path(environment.get("HOME", "/nonexistent"))
    named = [Path(environment[name]) for name in ("RATTLER_AUTH_FILE", "SSL_CERT_FILE") if environment.get(name)]
    netrc = Path(environment.get("NETRC") or home / ".netrc")
    if endless := first_endless([*named, netrc, home / ".rattler/credentials.json"]):
        what = UNREADABLE_SETTINGS.message.format(reason="it is a pipe or a device")
        raise EnvironmentBuildError(UNREADABLE_SETTINGS.kind, what, "put a file there, or remove it", str(endless))
    check_authorities(environment)


def check_indexes(channels: Iterable[str], subdir: str) -> None:
    """Refuse what is no file where a channel in a folder of this machine has an index."""
    folders = [folder for url in channels if (folder := local_file(url))]
    endless = first_endless(folder / name / "repodata.json" for folder in folders for name in ("", subdir, "noarch"))
    if endless:
        what = "a channel has a pipe or a device in place of its index"
        raise EnvironmentBuildError(
            "channel-invalid", what, "put its index there, or name another channel", str(endless)
        )


def index_channel(folder: Path) -> None:
    """Write the index (``repodata.json``) of each platform in a channel folder."""
    run_engine("index", folder=str(folder))


def _credentials_file(folder: Path, credentials: Credentials, environment: Mapping[str, str]) -> Path:
    """A file with the user's own credentials and those given, in a private folder that is removed after the request."""
    file = folder / "credentials.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(all_credentials(credentials, environment)), encoding="utf-8")
    return file


def all_credentials(given: Credentials, environment: Mapping[str, str]) -> Credentials:
    """Credentials that were given, and the user's own for other hosts, from the file named by ``RATTLER_AUTH_FILE``."""
    own = None
    with contextlib.suppress(KeyError, OSError, ValueError):
        own = read_json(Path(environment["RATTLER_AUTH_FILE"]))
    return own | given if isinstance(own, dict) else given


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
    progress: Progress = SILENT,
) -> None:
    """Install exactly these conda packages; files that contain their prefix contain `PREFIX_PLACEHOLDER`."""
    packages = [_verified(package) for package in packages]
    downloads = _downloads(packages, cache)
    try:
        with damaged_extracted_again(packages, downloads) as damaged:
            for name in damaged:
                progress.detail(f"files of {name} were changed in the cache; it is extracted again")
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
        variables = clean_environment() | {**settings.variables}
        raise _install_error(error, packages, prefix, variables) from error
    if downloads != cache_folder("conda-packages", cache):
        mark_used(downloads)
        return
    for package in packages:
        mark_used(folder_of(package, downloads))


def is_locked_file(package: CondaPackage, file: Path) -> bool:
    """Whether a file has the hash of a package; without a hash, every file has."""
    return not _difference(package, file)


def _verified(package: CondaPackage) -> CondaPackage:
    """The package, of a local channel with its SHA-256; the engine verifies only files that it downloads."""
    file = local_file(package.url)
    if file and first_endless([file]):
        what = f"conda package {package.name} {package.version}: its file is a pipe or a device"
        raise EnvironmentBuildError("channel-invalid", what, "put the package there, or lock again", str(file))
    if file is None or not file.is_file():
        return package  # the engine names a file that is not there
    if difference := _difference(package, file):
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
    error: EngineError, packages: Sequence[CondaPackage], prefix: Path, variables: Mapping[str, str]
) -> EnvironmentBuildError | StorageError:
    message = " ".join(str(error).split())
    named = next((package for package in packages if _names(message, package)), None)
    proxy = proxy_of(named.url, variables) if named else ""
    return error_from_output(
        _ERROR_PATTERNS,
        message,
        storage=prefix.parent,
        where=named.url if named else "",
        package=f"conda package {named.name} {named.version}" if named else "a conda package",
        reason=one_line(message),
        cause=last_cause(message),
        through=through(proxy),
        network_hint=network_hint(message, "the channel", proxy),
    )


def _names(message: str, package: CondaPackage) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(package.name)}(?![\w])", message) is not None


_ERROR_PATTERNS = (
    UNREADABLE_SETTINGS,
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
        kind="engine-failed",
        pattern=r"failed to link '.{1,2000}(?:could not update file modification|not permitted|not implemented)"
        r"|Permission denied \(os error|Read-only file system \(os error",
        message="{package} cannot be unpacked to the cache: {reason}",
        hint="set ENVPACK_CACHE_DIR to a folder on another file system, or, if access is denied, to one of this user",
    ),
    ErrorPattern(
        kind="channel-invalid",
        pattern=r"(?i)^(?!.*response body).*(?:invalid zip archive|invalid checksum|unknown frame descriptor"
        r"|zstd stream|incomplete frame|bzip2: |getting cksum|decompression not finished|no data was read"
        r"|failed to unpack|failed to read '(?:index|paths|link)\.json'|failed to link '.{1,2000}No such file"
        r"|: its (?:path|info/index\.json) )",
        message="{package}: its file is no conda package, or a damaged one: {reason}",
        hint="look at what the address sends, such as the page of a login; choose another version or build, or report "
        "it to the channel's owner",
    ),
    ErrorPattern(
        kind="channel-untrusted",
        pattern=UNTRUSTED.pattern.pattern,
        message="{package} cannot be downloaded, since the certificate of its channel is not trusted: {cause}",
        hint="{network_hint}",
    ),
    ErrorPattern(
        kind="channel-unreachable",
        pattern=r"No such file|not found|404|error sending request|failed to fetch|timed? ?out|connect",
        message="{package} cannot be downloaded{through}: {cause}",
        hint="{network_hint}; or the channel no longer has the package; packages in the cache need no channel",
    ),
    ErrorPattern(
        kind="engine-failed", pattern="", message="{package} could not be installed: {reason}", hint=ENGINE_HINT
    ),
)
