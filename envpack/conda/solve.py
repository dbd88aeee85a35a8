"""The conda part of a lock: match specs → exact packages."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envpack.conda.engine import CREDENTIALS_HINT, ENGINE_HINT, FORBIDDEN, EngineError, run_engine
from envpack.conda.settings import Channels, CondaSettings
from envpack.requirements import CondaPackage, Target
from envpack.support.error_patterns import ErrorPattern, error_from_output
from envpack.support.errors import EnvironmentBuildError
from envpack.support.text import one_line


def resolve_conda(
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
        answer = run_engine(
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
    return error_from_output(
        _CAUSES,
        f"{error.type_name}: {message}",
        full=cache,
        details=str(error) if error.type_name in {"SolverError", "InvalidMatchSpecError"} else "",
        guilty=failing_spec(message, specs),
        first=specs[0],
        glibc=target.glibc,
        channels=", ".join(channels.urls),
        one_line=one_line(message),
    )


_CAUSES = (
    ErrorPattern(
        kind="glibc-too-old",
        pattern=r"^SolverError: .*__glibc >=(?P<needed>[\d.]*\d)\.?, for which no candidates",
        says="{first!r} needs glibc {needed}, the target has {glibc}",
        hint="ask for an older version, or take a release with a newer system with --triton",
    ),
    ErrorPattern(
        kind="unresolvable",
        pattern="^(?:SolverError|InvalidMatchSpecError): ",
        says="conda requirement {guilty!r} cannot be resolved: {one_line}",
        hint="check name and version, or give a channel that has it; PyPI packages belong under pip:",
    ),
    ErrorPattern(
        kind="channel-forbidden",
        pattern=FORBIDDEN,
        says="a channel asks for credentials ({channels})",
        hint=CREDENTIALS_HINT,
    ),
    ErrorPattern(
        kind="channel-unreachable",
        pattern="^(?:GatewayError|FetchRepoDataError): ",
        says="no answer from a channel ({channels}): {one_line}",
        hint="check the address and the network; the channel 'local' needs neither",
    ),
    ErrorPattern(
        kind="engine-failed", pattern="", says="conda packages could not be chosen: {one_line}", hint=ENGINE_HINT
    ),
)


def failing_spec(message: str, specs: Sequence[str]) -> str:
    """The requirement that a solver's message is about: the last of ``specs`` whose name occurs in it."""
    for spec in reversed(specs):
        name = re.split(r"[\s=<>!~\[]", spec.rpartition("::")[2].strip(), maxsplit=1)[0]
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", message):
            return spec
    return specs[-1] if specs else ""
