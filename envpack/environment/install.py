"""From locked wheels to an installed prefix: exactly the packages of the lock, through uv."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from envpack.lock import failing_requirement, platform_name, run_uv, to_pylock, uv_error
from envpack.requirements import PipPackage, Target
from envpack.support.processes import CompletedProcess
from envpack.support.temp_dirs import temp_dir

_TRIES = 3  # to install from uv's cache, before all is asked for again; each names one wheel that is not there


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

    def installed(some: Sequence[PipPackage], *options: str) -> CompletedProcess:
        with temp_dir("install") as scratch:
            lock = scratch / "pylock.toml"
            lock.write_text(to_pylock(some, target), encoding="utf-8")
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
        raise uv_error(ended, [f"{package.name}=={package.version}" for package in missing], prefix.parent)


def _not_cached(packages: Sequence[PipPackage], installed: Callable[..., CompletedProcess]) -> Sequence[PipPackage]:
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
        guilty = failing_requirement(ended.stderr, [package.name for package in tried])
        tried = [package for package in tried if guilty not in ("", package.name)]
    return packages


def index_variables(lines: Sequence[str]) -> dict[str, str]:
    """The indexes that a requirements file names, as variables for uv, which finds passwords there by their host."""
    named = [line.split(maxsplit=1)[1] for line in lines if line.startswith(("--index-url ", "--extra-index-url "))]
    return {"UV_INDEX": " ".join(named)} if named else {}
