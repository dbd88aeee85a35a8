"""Match specs → exact conda packages, by the embedded engine."""

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
    from_result,
    run_engine,
)
from envpack.conda.settings import Channels, CondaSettings
from envpack.requirements import CondaPackage, Target
from envpack.support.error_patterns import ErrorPattern, error_from_output
from envpack.support.errors import EnvironmentBuildError, StorageError
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
    """Resolve match specs.

    Args:
        specs: match specs, python first.
        channels: in order of preference; a package is taken only from the first channel that has its name.
        target: what the packages are for; this machine does not matter.
        settings: the user's conda settings, for proxies and certificates.
        cache: folder for the channels' indexes.
        prefer: packages to keep where they still fit.

    Returns:
        The packages, sorted by name.

    Raises:
        EnvironmentBuildError: ``unresolvable``, ``glibc-too-old``, ``channel-unreachable``, ``channel-forbidden``,
            ``disk-full`` or ``engine-failed``.
    """
    try:
        result = run_engine(
            {
                "operation": "resolve",
                "specs": list(specs),
                "channels": list(channels.urls),
                "subdir": target.platform,
                "virtual_packages": virtual_packages(target),
                "index_cache": str(cache / "conda-index"),
                "prefer": [as_request(package) for package in prefer],
            },
            settings=settings,
            credentials=channels.credentials,
        )
    except EngineError as error:
        raise _resolve_error(error, specs, channels, target, cache) from error
    return tuple(sorted(map(from_result, result["packages"]), key=lambda package: package.name))


def virtual_packages(target: Target) -> list[tuple[str, str, str]]:
    """Name, version and build of the virtual packages of a target."""
    packages = [
        ("__unix", "0", "0"),
        ("__linux", "5.10", "0"),
        ("__glibc", target.glibc, "0"),
        ("__archspec", "1", target.machine),
    ]
    return [*packages, ("__cuda", target.cuda, "0")] if target.cuda else packages


def _resolve_error(
    error: EngineError, specs: Sequence[str], channels: Channels, target: Target, cache: Path
) -> EnvironmentBuildError | StorageError:
    message = " ".join(str(error).split())
    return error_from_output(
        _ERROR_PATTERNS,
        f"{error.type_name}: {message}",
        storage=cache,
        details=str(error) if error.type_name in {"SolverError", "InvalidMatchSpecError"} else "",
        spec=failing_spec(message, specs),
        first=specs[0],
        glibc=target.glibc,
        channels=", ".join(channels.urls),
        reason=one_line(message),
    )


_ERROR_PATTERNS = (
    ErrorPattern(
        kind="glibc-too-old",
        pattern=r"^SolverError: .*__glibc >=(?P<required>[\d.]*\d)\.?, for which no candidates",
        message="{first!r} needs glibc {required}, the target has {glibc}",
        hint="require an older version, choose a release with a newer system with --triton, or, for a Python of this "
        "machine, let uv fetch one that needs glibc 2.17 only, with --python-preference managed",
    ),
    ErrorPattern(
        kind="unresolvable",
        pattern="^(?:SolverError|InvalidMatchSpecError): ",
        message="conda requirement {spec!r} cannot be resolved: {reason}",
        hint="check name and version, or name a channel that has it; PyPI packages belong under pip:",
    ),
    ErrorPattern(
        kind="channel-forbidden",
        pattern=FORBIDDEN_PATTERN,
        message="a channel requires credentials ({channels})",
        hint=CREDENTIALS_HINT,
    ),
    ErrorPattern(
        kind="channel-unreachable",
        pattern="^(?:GatewayError|FetchRepoDataError): ",
        message="a channel does not answer ({channels}): {reason}",
        hint="check the address and the network; the channel 'local' needs neither",
    ),
    ErrorPattern(
        kind="engine-failed", pattern="", message="conda packages could not be resolved: {reason}", hint=ENGINE_HINT
    ),
)


def failing_spec(message: str, specs: Sequence[str]) -> str:
    """The match spec that a resolver's message is about: the last of ``specs`` whose name occurs in it."""
    for spec in reversed(specs):
        name = re.split(r"[\s=<>!~\[]", spec.rpartition("::")[2].strip(), maxsplit=1)[0]
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", message):
            return spec
    return specs[-1] if specs else ""
