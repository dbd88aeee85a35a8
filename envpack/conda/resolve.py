"""Match specs → exact conda packages, by the embedded engine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from envpack.conda.engine import (
    CREDENTIALS_HINT,
    ENGINE_HINT,
    FORBIDDEN_PATTERN,
    UNREADABLE_SETTINGS,
    EngineError,
    check_indexes,
    run_engine,
)
from envpack.conda.settings import Channels, CondaSettings
from envpack.requirements.conda_spec import parse_spec, tidy_spec, without_build
from envpack.requirements.import_names import package_of
from envpack.requirements.model import CondaPackage
from envpack.requirements.target import Target, only_system
from envpack.support.connection_faults import UNTRUSTED, last_cause, network_hint, proxy_of, through
from envpack.support.entry_locks import mark_used
from envpack.support.errors import EnvironmentBuildError, StorageError
from envpack.support.folders import cache_folder
from envpack.support.processes import ErrorPattern, clean_environment, error_from_output
from envpack.support.text import line_in_parentheses, normalise_name, one_line

# Seconds for the download of an index: at first, and again from a channel that has begun to send it.
_PATIENCE = 60, 600


def resolve_conda(
    specs: Sequence[str],
    channels: Channels,
    target: Target,
    *,
    settings: CondaSettings,
    cache: Path,
    prefer: Sequence[CondaPackage] = (),
    places: Mapping[str, str],
) -> tuple[CondaPackage, ...]:
    """Resolve match specs; returns the packages, sorted by name."""
    alternatives = [_with_addresses(spec, settings) for spec in specs]
    named = [_SUBDIR.sub("", spec.rpartition("::")[0]) for each in alternatives for spec in each]
    check_indexes([*channels.urls, *named], target.platform)
    try:
        result = run_engine(
            "resolve",
            settings=settings,
            credentials=channels.credentials,
            specs=alternatives,
            channels=channels.urls,
            subdir=target.platform,
            virtual_packages=virtual_packages(target),
            index_cache=str(cache_folder("conda-index", cache)),
            prefer=prefer,
            patience=_PATIENCE,
        )
    except EngineError as error:
        culprits = [specs[number] for number in error.culprits]
        variables = clean_environment() | {**settings.variables}
        proxy = next(filter(None, (proxy_of(url, variables) for url in channels.urls)), "")
        raise _resolve_error(error, culprits, places, channels, target, cache, proxy) from error
    mark_used(cache_folder("conda-index", cache))
    packages = [
        CondaPackage(**found | {key: tuple(found[key]) for key in ("depends", "constrains")})
        for found in result["packages"]
    ]
    return tuple(sorted(packages, key=lambda package: package.name))


def virtual_packages(target: Target) -> list[tuple[str, str, str]]:
    packages = [
        ("__unix", "0", "0"),
        ("__linux", "5.10", "0"),
        ("__glibc", target.glibc, "0"),
        ("__archspec", "1", target.machine),
    ]
    return [*packages, ("__cuda", target.cuda, "0")] if target.cuda else packages


def _resolve_error(
    error: EngineError,
    culprits: Sequence[str],
    places: Mapping[str, str],
    channels: Channels,
    target: Target,
    cache: Path,
    proxy: str = "",
) -> EnvironmentBuildError | StorageError:
    message = " ".join(str(error).split())
    return error_from_output(
        _ERROR_PATTERNS,
        f"{error.type_name}: {message}",
        storage=cache,
        details=str(error) if error.type_name in {"SolverError", "InvalidMatchSpecError"} else "",
        where=places.get(culprits[-1], "") if culprits else "",
        requirements=describe_specs(culprits, places),
        hint=spec_hint(culprits),
        glibc=target.glibc,
        channels=", ".join(channels.urls),
        reason=one_line(message),
        cause=last_cause(message),
        through=through(proxy),
        network_hint=network_hint(message, "the channel", proxy),
    )


_ERROR_PATTERNS = (
    UNREADABLE_SETTINGS,
    ErrorPattern(
        kind="glibc-too-old",
        pattern=r"^SolverError: .*__glibc >=(?P<required>[\d.]*\d)\.?, for which no candidates",
        message="{requirements}: glibc {required} is needed, and the target has {glibc}",
        hint="require an older version, or choose a release whose image has glibc {required}, if there is one, with "
        "--triton; for a Python of this machine, let uv fetch one that needs glibc 2.17 only, with --set "
        "python_preference=managed",
    ),
    ErrorPattern(
        kind="unresolvable",
        pattern="^(?:SolverError|InvalidMatchSpecError): ",
        message="{requirements}: {reason}",
        hint="{hint}",
    ),
    ErrorPattern(
        kind="channel-forbidden",
        pattern=FORBIDDEN_PATTERN,
        message="a channel requires credentials ({channels})",
        hint=CREDENTIALS_HINT,
    ),
    ErrorPattern(
        kind="channel-untrusted",
        pattern=UNTRUSTED.pattern.pattern,
        message="the certificate of a channel is not trusted ({channels}): {cause}",
        hint="{network_hint}",
    ),
    ErrorPattern(
        kind="channel-invalid",
        pattern=r"could not find subdir '(?P<subdir>[\w-]{1,40})' in channel",
        message="a channel has no index in its folder {subdir} ({channels})",
        hint="check the address: a channel has an index in noarch and in linux-64, also if no package is there",
    ),
    ErrorPattern(
        kind="channel-invalid",
        pattern="failed to (?:decode zstd|parse repodata|extract repodata)|Unknown frame descriptor|zstd stream"
        "|incomplete frame",
        message="a channel answers with something else than an index ({channels}): {reason}",
        hint="check the address: a login or a proxy may answer in its place; or report it to the channel's owner",
    ),
    ErrorPattern(
        kind="channel-unreachable",
        pattern="^(?:GatewayError|FetchRepoDataError): ",
        message="a channel does not answer{through} ({channels}): {cause}",
        hint="{network_hint}; or name no channel: envpack then takes Python from this machine, and other packages"
        " belong under pip:",
    ),
    ErrorPattern(
        kind="engine-failed", pattern="", message="conda packages could not be resolved: {reason}", hint=ENGINE_HINT
    ),
)


_SUBDIR = re.compile(r"/(?P<subdir>noarch|(?:linux|osx|win|emscripten)-\w+)$")


def spec_channels(specs: Sequence[str]) -> tuple[str, ...]:
    named = (_SUBDIR.sub("", parse_spec(spec).channel) for spec in specs)
    return tuple(dict.fromkeys(channel for channel in named if channel))


def _with_addresses(spec: str, settings: CondaSettings) -> list[str]:
    """A match spec with the addresses of its channel; ``defaults`` is a name for several."""
    channel = parse_spec(spec).channel
    if not channel:
        return [spec]
    rest = tidy_spec(spec).rpartition("::")[2]
    subdir = _SUBDIR.search(channel)
    folder = subdir.group() if subdir else ""
    return [f"{url}{folder}::{rest}" for url in settings.resolve([channel.removesuffix(folder)]).urls]


def describe_specs(specs: Sequence[str], places: Mapping[str, str]) -> str:
    if not specs:
        return "the conda requirements cannot be met together, and it is not known which of them"
    if len(specs) == 1:
        return f"conda requirement {specs[0]!r} cannot be resolved"
    lines = [f"{spec!r}{line_in_parentheses(places.get(spec, ''))}" for spec in specs]
    return f"conda requirements {' and '.join(lines)} cannot be met together"


def spec_hint(specs: Sequence[str]) -> str:
    if len(specs) > 1:
        return f"change one of them: {' or '.join(map(repr, specs))}"
    spec = parse_spec(specs[0]) if specs else None
    if spec and only_system(spec.name):
        return f"only {only_system(spec.name)} has {spec.name}: remove it"
    if spec and package_of(spec.name) != normalise_name(spec.name):
        return f"{spec.name} is the name of a module; its package is {package_of(spec.name)}: name that under pip:"
    if specs and re.search(r"\[[^=\]]+\]$", specs[0]):
        return "a package of conda has no extras: name it under pip:"
    if specs and without_build(specs[0]) != specs[0]:
        return (
            f"write {without_build(specs[0])}, without the build: channels remove builds, and other systems have others"
        )
    return "check name and version, or name a channel that has it; PyPI packages belong under pip:"
