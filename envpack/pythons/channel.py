"""The local channel: interpreters of this machine as conda packages that any solver can use."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from envpack.conda import ENGINE_HINT, EngineError, index_channel
from envpack.pythons.conda_package import CondaPackage, fingerprint, make_package, subdir
from envpack.pythons.interpreters import Interpreter
from envpack.support.cache_locations import cache_root
from envpack.support.errors import EnvironmentBuildError
from envpack.support.progress import NoProgress, Progress
from envpack.support.replacement import new_folder

_DESCRIPTION = "envpack-package.json"


@dataclass(frozen=True)
class LocalChannel:
    """A channel folder holding the package of one interpreter; complete and never changed once it exists."""

    folder: Path
    package: CondaPackage


def local_channel(
    interpreter: Interpreter, *, cache: Path | None = None, progress: Progress | None = None
) -> LocalChannel:
    """The channel that offers ``interpreter``, made now if this interpreter has none yet.

    Several processes may ask at once: one makes it, the others wait.

    Raises:
        EnvironmentBuildError: the interpreter cannot be made relocatable, or the channel not indexed.
        OSError: the disk is full.

    """
    progress = progress or NoProgress()
    root = (cache or cache_root()) / "channel"
    folder = root / fingerprint(interpreter)
    found = _read(folder)
    if found:
        return found
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f".{folder.name}.lock"):
        found = _read(folder)
        if found:
            return found
        progress.begin(f"turn Python {interpreter.version} of this machine into a conda package")
        with new_folder(folder) as partial:
            _make_channel(interpreter, partial)
        made = _read(folder)
        if made is None:
            raise EnvironmentBuildError(
                "the local channel is incomplete",
                kind="engine-failed",
                where=str(folder),
                hint=f"remove {folder} and build again",
            )
        progress.end(f"{made.package.file.stat().st_size / 1e6:.1f} MB")
        return made


def _make_channel(interpreter: Interpreter, folder: Path) -> None:
    (folder / subdir()).mkdir()
    (folder / "noarch").mkdir()
    package = make_package(interpreter, folder / subdir())
    try:
        index_channel(folder)
    except EngineError as error:
        raise EnvironmentBuildError(
            f"the local channel could not be indexed: {error}", kind="engine-failed", hint=ENGINE_HINT
        ) from error
    description = {
        "schema": 1,
        "file": str(package.file.relative_to(folder)),
        "version": package.version,
        "build": package.build,
        "glibc": package.glibc,
        "sha256": package.sha256,
    }
    (folder / _DESCRIPTION).write_text(json.dumps(description, indent=1), encoding="utf-8")


def _read(folder: Path) -> LocalChannel | None:
    try:
        told = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    package = CondaPackage(folder / told["file"], told["version"], told["build"], told["glibc"], told["sha256"])
    return LocalChannel(folder, package)
