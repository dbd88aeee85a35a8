"""From a lock to a prefix: exactly the packages of the lock, conda's first, then the wheels."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from envpack.environment.causes import Cause, explain
from envpack.environment.conda_settings import CondaSettings, Credentials
from envpack.environment.engine import CREDENTIALS_HINT, ENGINE_HINT, FORBIDDEN, EngineError, ask_engine
from envpack.environment.lock.model import Target
from envpack.environment.lock.pip import as_pylock
from envpack.environment.relocation import STAND_IN
from envpack.environment.uv import explained, guilty_requirement, platform_name, run_uv
from envpack.environment.wording import gist
from envpack.errors import EnvironmentBuildError
from envpack.process import Finished
from envpack.requirements import CondaPackage, PipPackage
from envpack.scratch import scratch_folder

_TRIES = 3  # to install from uv's cache, before all is asked for again; each names one wheel that is not there


def install_conda(
    packages: Sequence[CondaPackage],
    prefix: Path,
    target: Target,
    *,
    settings: CondaSettings,
    credentials: Credentials,
    cache: Path,
) -> None:
    """Install exactly these conda packages; files that name their prefix name `STAND_IN`.

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
        ask_engine(
            "install",
            settings=settings,
            credentials=credentials,
            packages=[dataclasses.asdict(package) for package in packages],
            prefix=prefix,
            subdir=target.platform,
            stand_in=STAND_IN,
            package_cache=cache / "conda-packages",
        )
    except EngineError as error:
        raise _explained(error, packages, prefix) from error


def _explained(error: EngineError, packages: Sequence[CondaPackage], prefix: Path) -> EnvironmentBuildError:
    message = " ".join(str(error).split())
    named = next((one for one in packages if re.search(rf"(?<![\w-]){re.escape(one.name)}(?![\w])", message)), None)
    return explain(
        _CAUSES,
        message,
        full=prefix.parent,
        where=named.url if named else "",
        about=f"conda package {named.name} {named.version}" if named else "a conda package",
        gist=gist(message),
    )


_CAUSES = (
    Cause(
        kind="hash-mismatch",
        pattern=r"(?i)hash mismatch|mismatch.*(?:sha256|md5)|(?:sha256|md5).*mismatch",
        says="{about}: the file is not the one that its hash names: {gist}",
        hint="lock again if you trust the new file, else ask who runs the channel",
    ),
    Cause(
        kind="channel-forbidden",
        pattern=FORBIDDEN,
        says="{about}: the channel asks for credentials",
        hint=CREDENTIALS_HINT,
    ),
    Cause(
        kind="channel-unreachable",
        pattern=r"No such file|not found|404|error sending request|failed to fetch|timed? ?out|connect",
        says="{about} cannot be had: {gist}",
        hint="check that the channel still has it, and the network; what is in the cache needs neither",
    ),
    Cause(kind="engine-failed", pattern="", says="{about} could not be installed: {gist}", hint=ENGINE_HINT),
)


def install_pip(
    packages: Sequence[PipPackage], prefix: Path, target: Target, *, python: Path, indexes: Sequence[str] = ()
) -> None:
    """Install exactly these wheels into a prefix that holds a Python.

    Args:
        packages: wheels, by address and hash; source distributions are built. None means nothing to do.
        prefix: root of the environment.
        target: decides which wheels fit.
        python: an interpreter of the same minor version that runs here: the prefix's own if it does.
        indexes: lines of a requirements file that say where wheels come from; they may hold passwords.

    Raises:
        EnvironmentBuildError: what uv says: ``hash-mismatch``, ``index-unreachable``, ``not-in-cache`` and so on.

    """
    if not packages:
        return
    into: list[str | Path] = ["--python", python]
    if not python.is_relative_to(prefix):
        into += ["--prefix", prefix]

    def installed(some: Sequence[PipPackage], *options: str) -> Finished:
        with scratch_folder("install") as scratch:
            lock = scratch / "pylock.toml"
            lock.write_text(as_pylock(some, target), encoding="utf-8")
            return run_uv(
                [
                    *("pip", "install", *into, "--no-deps", "--requirements", lock, *options),
                    *("--python-platform", platform_name(target.machine, target.glibc)),
                ],
                variables=index_variables(indexes),
            )

    missing = _not_cached(packages, installed)
    ended = installed(missing) if missing else None
    if ended and ended.returncode != 0:
        raise explained(ended, [f"{package.name}=={package.version}" for package in missing], prefix.parent)


def _not_cached(packages: Sequence[PipPackage], installed: Callable[..., Finished]) -> Sequence[PipPackage]:
    """Install the wheels that uv has in its cache, and give the rest.

    uv asks an index again for what it has if the index did not say for how long it may be kept, as many mirrors do
    not, and then downloads all of it once more. A wheel with this hash cannot have changed.
    """
    tried = [package for package in packages if package.url.endswith(".whl")]
    for _ in range(_TRIES):
        if not tried:
            break
        ended = installed(tried, "--offline")
        if ended.returncode == 0:
            return [package for package in packages if package not in tried]
        guilty = guilty_requirement(ended.stderr, [package.name for package in tried])
        tried = [package for package in tried if guilty not in ("", package.name)]
    return packages


def index_variables(lines: Sequence[str]) -> dict[str, str]:
    """The indexes that a requirements file names, as variables for uv, which finds passwords there by their host."""
    named = [line.split(maxsplit=1)[1] for line in lines if line.startswith(("--index-url ", "--extra-index-url "))]
    return {"UV_INDEX": " ".join(named)} if named else {}


def check_consistency(prefix: Path, python: Path) -> None:
    """Make sure that each installed Python package finds the others that it needs, in versions that it can do with.

    Raises:
        EnvironmentBuildError: kind ``inconsistent``, with what does not fit.

    """
    ended = run_uv(["pip", "check", "--python", python])
    wrong = [line.strip() for line in ended.stderr.splitlines() if re.match(r"The package .* requires ", line)]
    if not wrong:  # uv also stumbles over incomplete records, which some conda packages have and nobody needs
        return
    raise EnvironmentBuildError(
        "\n".join(["packages do not fit together", *wrong]),
        kind="inconsistent",
        where=str(prefix),
        hint="take both from conda, or both from pip, or name a version that fits",
    )
