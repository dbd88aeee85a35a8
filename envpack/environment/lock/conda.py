"""The conda part of a lock: match specs → exact packages."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envpack.environment.conda_settings import Channels, CondaSettings
from envpack.environment.disk import FULL_TEXT, disk_full
from envpack.environment.engine import ENGINE_HINT, EngineError, ask_engine
from envpack.environment.lock.model import Target
from envpack.environment.wording import gist
from envpack.errors import EnvironmentBuildError
from envpack.requirements import CondaPackage

_OFFLINE_HINT = "check the address and the network; the channel 'local' needs neither"


def solve_conda(
    specs: Sequence[str],
    channels: Channels,
    target: Target,
    *,
    settings: CondaSettings,
    cache: Path,
    prefer: Sequence[CondaPackage] = (),
) -> tuple[CondaPackage, ...]:
    """Choose packages that fulfil match specs.

    Args:
        specs: what is wanted, python first.
        channels: where to look, in order of preference; the first that has a package of some name is asked for it.
        target: what the packages are for, whatever this machine is.
        settings: the user's, for proxies and certificates.
        cache: folder for the channels' indexes.
        prefer: packages to stay with where they still fit.

    Raises:
        EnvironmentBuildError: ``unresolvable``, ``glibc-too-old``, ``channel-unreachable``, ``channel-forbidden``,
            ``disk-full`` or ``engine-failed``.

    """
    try:
        answer = ask_engine(
            "solve",
            settings=settings,
            credentials=channels.credentials,
            specs=list(specs),
            channels=list(channels.urls),
            subdir=target.platform,
            virtual_packages=virtual_packages(target),
            index_cache=cache / "conda-index",
            prefer=[dataclasses.asdict(package) for package in prefer],
        )
    except EngineError as error:
        raise _explained(error, specs, channels, target, cache) from error
    found = (CondaPackage(**_as_tuples(package)) for package in answer["packages"])
    return tuple(sorted(found, key=lambda package: package.name))


def _as_tuples(package: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in package.items()}


def virtual_packages(target: Target) -> list[tuple[str, str, str]]:
    """Name, version and build of what the target offers, whatever this machine is."""
    offered = [
        ("__unix", "0", "0"),
        ("__linux", "5.10", "0"),
        ("__glibc", target.glibc, "0"),
        ("__archspec", "1", target.machine),
    ]
    return [*offered, ("__cuda", target.cuda, "0")] if target.cuda else offered


def _explained(
    error: EngineError, specs: Sequence[str], channels: Channels, target: Target, cache: Path
) -> EnvironmentBuildError:
    message = " ".join(str(error).split())
    if FULL_TEXT in message:
        return disk_full(cache)
    if error.type_name in {"SolverError", "InvalidMatchSpecError"}:
        return _unresolvable(message, str(error), specs, target)
    if re.search(r"\b40[13]\b|Unauthorized|Forbidden", message):
        return EnvironmentBuildError(
            f"a channel asks for credentials ({', '.join(channels.urls)})",
            kind="channel-forbidden",
            hint="put them into ~/.netrc, the file that RATTLER_AUTH_FILE names, or the channel's address in .condarc",
        )
    if error.type_name in {"GatewayError", "FetchRepoDataError"}:
        return EnvironmentBuildError(
            f"no answer from a channel ({', '.join(channels.urls)}): {gist(message)}",
            kind="channel-unreachable",
            hint=_OFFLINE_HINT,
        )
    return EnvironmentBuildError(
        f"conda packages could not be chosen: {gist(message)}", kind="engine-failed", hint=ENGINE_HINT
    )


def _unresolvable(message: str, whole: str, specs: Sequence[str], target: Target) -> EnvironmentBuildError:
    needed = re.search(r"__glibc >=([\d.]+), for which no candidates", message)
    if needed:
        return EnvironmentBuildError(
            f"{specs[0]!r} needs glibc {needed[1].rstrip('.')}, the target has {target.glibc}",
            kind="glibc-too-old",
            hint="ask for an older version, or take a release with a newer system with --triton",
        )
    guilty = guilty_spec(message, specs)
    return EnvironmentBuildError(
        f"conda requirement {guilty!r} cannot be resolved: {gist(message)}",
        kind="unresolvable",
        hint="check name and version, or give a channel that has it; PyPI packages belong under pip:",
        details=whole,
    )


def guilty_spec(message: str, specs: Sequence[str]) -> str:
    """The requirement that a solver's message is about: the last of ``specs`` whose name occurs in it."""
    for spec in reversed(specs):
        name = re.split(r"[\s=<>!~\[]", spec.rpartition("::")[2].strip(), maxsplit=1)[0]
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", message):
            return spec
    return specs[-1] if specs else ""
