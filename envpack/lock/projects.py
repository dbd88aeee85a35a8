"""Local projects as wheels: what is installed is what was built, never a link to somebody's folder."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from envpack.lock.uv import run_uv, uv_error
from envpack.requirements import Target
from envpack.support.errors import EnvironmentBuildError


def build_wheels(projects: Sequence[Path], target: Target, python: Path, cache: Path) -> tuple[Path, ...]:
    """Build a wheel of each project, into the cache.

    Args:
        projects: their folders.
        target: what the wheels must run on.
        python: an interpreter of the target's minor version that runs here.
        cache: folder that the wheels stay in.

    Raises:
        EnvironmentBuildError: ``build-failed``, or what uv says of the packages that building needs.

    """
    return tuple(_build(project, target, python, cache / "wheels") for project in projects)


def _build(project: Path, target: Target, python: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        ended = run_uv(["build", "--wheel", "--out-dir", scratch, "--python", python, "--no-config", project])
        built = list(Path(scratch).glob("*.whl"))
        if ended.returncode != 0 or len(built) != 1:
            raise uv_error(ended, [project.name], folder)
        if not built[0].stem.endswith(("-any", target.machine)):
            raise EnvironmentBuildError(
                f"the wheel of {project.name} is for this machine, not for {target.platform}",
                kind="build-failed",
                where=str(project),
                hint=f"build it on a {target.machine} machine and require the wheel",
            )
        return _kept(built[0], folder)


def _kept(wheel: Path, folder: Path) -> Path:
    """The wheel under a name that says its content, so that a lock finds it whatever is built later."""
    import hashlib

    place = folder / hashlib.sha256(wheel.read_bytes()).hexdigest()[:16]
    place.mkdir(exist_ok=True)
    return wheel.replace(place / wheel.name)
