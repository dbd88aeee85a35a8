"""The conda part of an environment: solve and install with the embedded engine."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.environment.conda_package import subdir
from envpack.environment.disk import FULL_TEXT, disk_full
from envpack.environment.engine import ENGINE_HINT, EngineError, ask_engine
from envpack.errors import EnvironmentBuildError


@dataclass(frozen=True)
class CondaTarget:
    """Where conda packages go and what they will meet there.

    Attributes:
        prefix: folder to install to; new or empty.
        final_prefix: the folder that text files shall name, where the prefix is moved to later.
        glibc: version of the target's C library.
        cache: folder for downloads and unpacked packages, on the same file system as ``prefix`` for hard links.

    """

    prefix: Path
    final_prefix: Path
    glibc: str
    cache: Path


def install_conda(specs: Sequence[str], channels: Sequence[str], target: CondaTarget) -> tuple[tuple[str, str], ...]:
    """Solve match specs against channels (URLs or paths, in order of preference) and install the answer.

    Returns:
        Name and version of each package, sorted by name.

    Raises:
        EnvironmentBuildError: ``unresolvable``, ``channel-unreachable``, ``disk-full`` or ``engine-failed``.

    """
    try:
        answer = ask_engine(
            "create",
            specs=list(specs),
            channels=list(channels),
            prefix=target.prefix,
            final_prefix=target.final_prefix,
            subdir=subdir(),
            virtual_packages=virtual_packages(target.glibc),
            package_cache=target.cache / "conda-packages",
            index_cache=target.cache / "conda-index",
        )
    except EngineError as error:
        raise _explained(error, specs, channels, target) from error
    return tuple((package["name"], package["version"]) for package in answer["packages"])


def virtual_packages(glibc: str) -> list[tuple[str, str, str]]:
    """Name, version and build of what the target offers, whatever this machine is."""
    machine = platform.machine()
    return [
        ("__unix", "0", "0"),
        ("__linux", "5.10", "0"),
        ("__glibc", glibc, "0"),
        ("__archspec", "1", machine),
    ]


def _explained(
    error: EngineError, specs: Sequence[str], channels: Sequence[str], target: CondaTarget
) -> EnvironmentBuildError:
    message = " ".join(str(error).split())
    if FULL_TEXT in message:
        return disk_full(target.final_prefix)
    if error.type_name in {"SolverError", "InvalidMatchSpecError"}:
        needed = re.search(r"__glibc >=([\d.]+), for which no candidates", message)
        if needed:
            return EnvironmentBuildError(
                f"{specs[0]!r} needs glibc {needed[1].rstrip('.')}, the target has {target.glibc}",
                kind="glibc-too-old",
                hint="ask for an older version, or take a release with a newer system with --triton",
            )
        guilty = guilty_spec(message, specs)
        return EnvironmentBuildError(
            f"conda requirement {guilty!r} cannot be resolved: {message}",
            kind="unresolvable",
            hint="check name and version, or give a channel that has it; PyPI packages belong under pip:",
        )
    if error.type_name in {"GatewayError", "FetchRepoDataError"}:
        return EnvironmentBuildError(
            f"no answer from a channel ({', '.join(channels)}): {message}",
            kind="channel-unreachable",
            hint="check the address and the network; the channel 'local' needs neither",
        )
    return EnvironmentBuildError(
        f"conda packages could not be installed: {message}", kind="engine-failed", hint=ENGINE_HINT
    )


def guilty_spec(message: str, specs: Sequence[str]) -> str:
    """The requirement that a solver's message is about: the last of ``specs`` whose name occurs in it."""
    for spec in reversed(specs):
        name = re.split(r"[\s=<>!~\[]", spec.rpartition("::")[2].strip(), maxsplit=1)[0]
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", message):
            return spec
    return specs[-1] if specs else ""
