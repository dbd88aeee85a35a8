"""Installs the wheels of a lock into a prefix with uv."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from envpack.lock import failing_requirement, platform_name, to_pylock, uv_error
from envpack.requirements import PipPackage, Target
from envpack.support.folders import temp_dir
from envpack.support.processes import CompletedProcess
from envpack.support.uv import run_uv

_TRIES = 3  # offline attempts; each failure names one wheel that uv's cache does not have


def install_pip(
    packages: Sequence[PipPackage], prefix: Path, target: Target, *, python: Path, indexes: Sequence[str] = ()
) -> None:
    """Install exactly these wheels into a prefix that contains a Python."""
    if not packages:
        return
    into: list[str | Path] = ["--python", python]
    if not python.is_relative_to(prefix):
        into += ["--prefix", prefix]

    def installed(wheels: Sequence[PipPackage], *options: str) -> CompletedProcess:
        with temp_dir("install") as scratch:
            lock = scratch / "pylock.toml"
            lock.write_text(to_pylock(wheels, target), encoding="utf-8")
            return run_uv(
                [
                    *("pip", "install", *into, "--no-deps", "--requirements", lock, *options),
                    *("--python-platform", platform_name(target.machine, target.glibc)),
                    # Neither links to uv's cache: it is not ours. "clone" would fall back to hard links.
                    *("--link-mode", "copy"),
                ],
                variables=index_variables(indexes),
            )

    missing = _not_cached(packages, installed)
    ended = installed(missing) if missing else None
    if ended and ended.returncode != 0:
        raise uv_error(ended, [f"{package.name}=={package.version}" for package in missing], prefix.parent)


def _not_cached(packages: Sequence[PipPackage], installed: Callable[..., CompletedProcess]) -> Sequence[PipPackage]:
    """Install the wheels that uv has in its cache; returns the others.

    Many mirrors send no cache lifetime. uv then downloads cached wheels again, although the same hash means the same
    content.
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
    """The indexes of a requirements file as variables for uv, which looks up their passwords by host."""
    named = [line.split(maxsplit=1)[1] for line in lines if line.startswith(("--index-url ", "--extra-index-url "))]
    return {"UV_INDEX": " ".join(named)} if named else {}
