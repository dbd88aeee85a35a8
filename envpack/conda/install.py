"""From locked conda packages to an installed prefix."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from envpack.conda.engine import CREDENTIALS_HINT, ENGINE_HINT, FORBIDDEN, EngineError, run_engine
from envpack.conda.settings import CondaSettings, Credentials
from envpack.requirements import CondaPackage, Target
from envpack.support.error_patterns import ErrorPattern, error_from_output
from envpack.support.errors import EnvironmentBuildError
from envpack.support.text import one_line

# The prefix that files of conda packages name until an environment is placed: the same on every machine, so that
# equal packages give equal files, and longer than the path of any folder that replaces it.
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
    """Install exactly these conda packages; files that name their prefix name `PREFIX_PLACEHOLDER`.

    Args:
        packages: what to install.
        prefix: new or empty folder.
        target: its platform counts.
        settings: the user's, for proxies and certificates.
        credentials: passwords and tokens, by host.
        cache: folder for downloads, on the file system of ``prefix`` if its files are to be hard links.

    Raises:
        EnvironmentBuildError: ``hash-mismatch``, ``channel-unreachable``, ``channel-forbidden``, ``disk-full`` or
            ``engine-failed``; says which package.

    """
    try:
        run_engine(
            "install",
            settings=settings,
            credentials=credentials,
            packages=[dataclasses.asdict(package) for package in packages],
            prefix=prefix,
            subdir=target.platform,
            stand_in=PREFIX_PLACEHOLDER,
            package_cache=cache / "conda-packages",
        )
    except EngineError as error:
        raise _explained(error, packages, prefix) from error


def _explained(error: EngineError, packages: Sequence[CondaPackage], prefix: Path) -> EnvironmentBuildError:
    message = " ".join(str(error).split())
    named = next((one for one in packages if re.search(rf"(?<![\w-]){re.escape(one.name)}(?![\w])", message)), None)
    return error_from_output(
        _CAUSES,
        message,
        full=prefix.parent,
        where=named.url if named else "",
        about=f"conda package {named.name} {named.version}" if named else "a conda package",
        one_line=one_line(message),
    )


_CAUSES = (
    ErrorPattern(
        kind="hash-mismatch",
        pattern=r"(?i)hash mismatch|mismatch.*(?:sha256|md5)|(?:sha256|md5).*mismatch",
        says="{about}: the file is not the one that its hash names: {one_line}",
        hint="lock again if you trust the new file, else ask who runs the channel",
    ),
    ErrorPattern(
        kind="channel-forbidden",
        pattern=FORBIDDEN,
        says="{about}: the channel asks for credentials",
        hint=CREDENTIALS_HINT,
    ),
    ErrorPattern(
        kind="channel-unreachable",
        pattern=r"No such file|not found|404|error sending request|failed to fetch|timed? ?out|connect",
        says="{about} cannot be had: {one_line}",
        hint="check that the channel still has it, and the network; what is in the cache needs neither",
    ),
    ErrorPattern(kind="engine-failed", pattern="", says="{about} could not be installed: {one_line}", hint=ENGINE_HINT),
)
