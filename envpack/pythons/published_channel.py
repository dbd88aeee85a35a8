"""A channel folder for others: interpreters of this machine as conda packages, to be served or carried elsewhere.

Who reads it, or is killed while writing it, at any moment finds the old or the new index. Packages come before the
index that names them, and are never removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.conda import ENGINE_HINT, EngineError, index_channel
from envpack.pythons.channel import local_channel
from envpack.pythons.conda_package import subdir
from envpack.pythons.interpreters import Interpreter
from envpack.support.cache_locations import data_root
from envpack.support.errors import EnvironmentBuildError, InputError
from envpack.support.progress import NoProgress, Progress
from envpack.support.replacement import link_or_copy, replaced_file
from envpack.support.storage_errors import storage_errors

_INDEX = "repodata.json"
_LOCK = ".envpack.lock"
_STAGE = ".envpack-index-"
_SUFFIXES = (".conda", ".tar.bz2")


@dataclass(frozen=True)
class ChannelPackage:
    """A package that the index of a channel names.

    Attributes:
        name: for example ``"python"``.
        version: for example ``"3.8.18"``.
        build: build string.
        subdir: ``"linux-64"``, ``"linux-aarch64"`` or ``"noarch"``.
        file: name of its file.
        size: bytes, 0 if the index does not say.
        sha256: of the file, ``""`` if the index does not say.

    """

    name: str
    version: str
    build: str
    subdir: str
    file: str
    size: int
    sha256: str


def default_channel() -> Path:
    """Where own channels go if nobody says where: ``$XDG_DATA_HOME/envpack/channels/own``.

    Not in the cache: others name the folder, and what is in it may not be made again from this machine as it is later.
    """
    return data_root() / "channels" / "own"


def add_interpreter(
    interpreter: Interpreter, folder: Path, *, progress: Progress | None = None
) -> tuple[ChannelPackage, bool]:
    """Put the conda package of an interpreter into a channel folder, which is made if it is missing.

    Several processes may add to one folder; each waits for the one before.

    Args:
        interpreter: one of this machine.
        folder: root of the channel, the one that ``linux-64`` lies in.
        progress: told of each step.

    Returns:
        The package, and whether anything was changed: it may have been there.

    Raises:
        InputError: kind ``not-a-channel``: an index in the folder cannot be read.
        EnvironmentBuildError: the interpreter cannot be made relocatable, a package in the folder is damaged, the
            disk is full, or the folder may not be written to.

    """
    from filelock import FileLock

    progress = progress or NoProgress()
    made = local_channel(interpreter, progress=progress).package
    with storage_errors(folder):
        (folder / subdir()).mkdir(parents=True, exist_ok=True)
        (folder / "noarch").mkdir(exist_ok=True)
        with FileLock(folder / _LOCK):
            found = _find(folder, made.file.name)
            place = folder / subdir() / made.file.name
            if found and found.sha256 == made.sha256 == _digest(place):
                return found, False
            with replaced_file(place) as partial:
                shutil.copyfile(made.file, partial)
            progress.begin(f"index {folder}")
            _index(folder)
            progress.end(f"{len(read_channel(folder))} packages")
            found = _find(folder, place.name)
    if found is None:
        raise EnvironmentBuildError(
            f"the index does not name {place.name}",
            kind="engine-failed",
            where=str(folder),
            hint="let nothing else write to the folder meanwhile, and run the command again",
        )
    return found, True


def read_channel(folder: Path) -> tuple[ChannelPackage, ...]:
    """The packages that the index of a channel folder names, sorted by name and version.

    Raises:
        InputError: kind ``not-a-channel``: there is no index, or none that can be read.

    """
    indexes = sorted(folder.glob(f"*/{_INDEX}"))
    if not indexes:
        raise _not_a_channel("there is no channel in this folder", folder)
    return tuple(sorted(_packages(indexes), key=lambda one: (one.name, _sortable(one.version), one.file)))


def _packages(indexes: list[Path]) -> Iterator[ChannelPackage]:
    for index in indexes:
        try:
            told = json.loads(index.read_text(encoding="utf-8"))
            for file, about in {**told.get("packages", {}), **told.get("packages.conda", {})}.items():
                yield _package(file, about, index.parent.name)
        except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
            raise _not_a_channel("the index cannot be read", index) from error


def _package(file: str, about: dict[str, Any], below: str) -> ChannelPackage:
    return ChannelPackage(
        name=str(about["name"]),
        version=str(about["version"]),
        build=str(about["build"]),
        subdir=below,
        file=file,
        size=int(about.get("size", 0)),
        sha256=str(about.get("sha256", "")),
    )


def _sortable(version: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in version.split("."))


def _find(folder: Path, file: str) -> ChannelPackage | None:
    if not (folder / subdir() / _INDEX).is_file():
        return None
    return next((one for one in read_channel(folder) if (one.subdir, one.file) == (subdir(), file)), None)


def _digest(file: Path) -> str:
    with contextlib.suppress(FileNotFoundError), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
    return ""


def _index(folder: Path) -> None:
    """Index links to the packages in a folder apart, then put the new index in the place of the old one."""
    for stale in folder.glob(f"{_STAGE}*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_STAGE, dir=folder) as apart:
        stage = Path(apart)
        packages = [file for file in folder.glob("[!.]*/*") if file.name.endswith(_SUFFIXES)]
        for package in packages:
            linked = stage / package.relative_to(folder)
            linked.parent.mkdir(exist_ok=True)
            link_or_copy(str(package), str(linked))
        (stage / "noarch").mkdir(exist_ok=True)
        try:
            index_channel(stage)
        except EngineError as error:
            raise _not_indexed(error, folder, packages) from error
        for part in sorted(one for one in stage.iterdir() if one.is_dir()):
            _publish(part, folder / part.name)


def _not_indexed(error: EngineError, folder: Path, packages: list[Path]) -> EnvironmentBuildError:
    """The error for an index that could not be made; names the file that is at fault, which the engine does not."""
    broken = next((file for file in packages if file.suffix == ".conda" and not zipfile.is_zipfile(file)), None)
    if broken:
        return EnvironmentBuildError(
            "this is no conda package, so the channel cannot be indexed",
            kind="engine-failed",
            where=str(broken),
            hint="remove it, or put the whole file there",
        )
    return EnvironmentBuildError(
        f"the channel could not be indexed: {error}", kind="engine-failed", where=str(folder), hint=ENGINE_HINT
    )


def _publish(part: Path, place: Path) -> None:
    """Move the index of one platform to its place: pieces first, then what names them; ``repodata.json`` is last."""
    files = [file for file in part.rglob("*") if file.is_file() and not file.name.endswith(_SUFFIXES)]
    for file in sorted(files, key=lambda one: (one.name == _INDEX, len(one.relative_to(part).parts) == 1, one)):
        target = place / file.relative_to(part)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(target) as partial:
            shutil.copyfile(file, partial)


def _not_a_channel(message: str, where: Path) -> InputError:
    return InputError(
        message,
        kind="not-a-channel",
        where=str(where),
        hint="give the folder that linux-64 lies in; envpack channel add-python makes one",
    )
