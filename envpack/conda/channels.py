"""Conda channels with interpreters of this machine: one for each interpreter in the cache, and folders to publish.

A reader of a published folder, at any moment and after any kill, finds the old or the new index. A package is written
before the index that names it, and is never removed.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.conda.engine import ENGINE_HINT, EngineError, index_channel
from envpack.conda.interpreter_package import fingerprint, make_package
from envpack.conda.interpreters import Interpreter
from envpack.support.bounded_reading import first_endless, read_json, sha256_of
from envpack.support.entry_locks import being_made, ingredients_in_use, mark_used
from envpack.support.errors import (
    EnvironmentBuildError,
    EnvpackError,
    InputError,
    refused_by_system,
    require_programs,
    storage_errors,
)
from envpack.support.folders import cache_folder, cache_root, data_root
from envpack.support.platforms import host_platform
from envpack.support.progress import SILENT, Progress
from envpack.support.replacement import link_or_copy, replaced_file, replaced_folder
from envpack.support.text import counted

_DESCRIPTION = "envpack-package.json"
_INDEX = "repodata.json"
_LOCK = ".envpack.lock"
_STAGE = ".envpack-index-"
_SUFFIXES = (".conda", ".tar.bz2")


@dataclass(frozen=True)
class InterpreterPackage:
    """The conda package of an interpreter, in a channel in the cache that is never changed once it exists."""

    file: Path  # the .conda file
    version: str  # Python version
    build: str  # build string; contains the `fingerprint` of the interpreter
    sha256: str  # of the file, in hexadecimal digits

    @property
    def channel(self) -> Path:
        return self.file.parent.parent


@dataclass(frozen=True, kw_only=True)
class ChannelPackage:
    """A package in the index of a channel."""

    name: str  # for example ``"python"``
    version: str  # for example ``"3.8.18"``
    build: str  # build string
    subdir: str  # ``"linux-64"``, ``"linux-aarch64"`` or ``"noarch"``
    file: str  # name of its file
    size: int  # bytes, 0 if the index does not contain it
    sha256: str  # of the file, ``""`` if the index does not contain it


def local_channel(
    interpreter: Interpreter, *, cache: Path | None = None, progress: Progress = SILENT
) -> InterpreterPackage:
    """The package of an interpreter in its channel in the cache, which one process makes and others wait for."""
    folder = cache_folder("channel", cache) / fingerprint(interpreter)
    package = _read_local(folder)
    if package:
        mark_used(folder)
        return package
    with storage_errors(folder), being_made(folder):
        package = _read_local(folder)
        if package:
            return package
        require_programs(folder.parent)
        progress.begin(f"turn Python {interpreter.version} of this machine into a conda package")
        with replaced_folder(folder) as partial:
            _make_local(interpreter, partial)
        package = _read_local(folder)
        if package is None:
            what = "the local channel is incomplete"
            raise EnvironmentBuildError("engine-failed", what, f"remove {folder} and build again", str(folder))
        progress.end(f"{package.file.stat().st_size / 1e6:.1f} MB")
        return package


def _make_local(interpreter: Interpreter, folder: Path) -> None:
    (folder / host_platform()).mkdir()
    (folder / "noarch").mkdir()
    package = make_package(interpreter, folder / host_platform())
    try:
        index_channel(folder)
    except EngineError as error:
        what = f"the local channel could not be indexed: {error}"
        failed = EnvironmentBuildError("engine-failed", what, ENGINE_HINT)
        raise refused_by_system(str(error), folder) or failed from error
    describe_package(folder, package, sha256_of(package))


def describe_package(folder: Path, package: Path, sha256: str) -> None:
    description = {"file": str(package.relative_to(folder)), "sha256": sha256}
    (folder / _DESCRIPTION).write_text(json.dumps(description, indent=1), encoding="utf-8")


def _read_local(folder: Path) -> InterpreterPackage | None:
    try:
        description = read_json(folder / _DESCRIPTION)
        file, sha256 = folder / description["file"], description["sha256"]
        indexed = _find(folder, file.name) if sha256_of(file) == sha256 else None
    except (FileNotFoundError, NotADirectoryError, ValueError, LookupError, TypeError, InputError):
        return None
    if indexed is None or indexed.sha256 != sha256:
        return None
    return InterpreterPackage(file, indexed.version, indexed.build, sha256)


def default_channel() -> Path:
    """The user's own channel; not in the cache, since lockfiles name it, and its packages may not be reproducible."""
    return data_root() / "channels" / "own"


def add_interpreter(
    interpreter: Interpreter, folder: Path, *, progress: Progress = SILENT
) -> tuple[ChannelPackage, bool]:
    """Put the package of an interpreter into a channel folder; returns it, and whether the folder was changed."""
    from filelock import FileLock

    with storage_errors(folder), ingredients_in_use(cache_root()):
        package = local_channel(interpreter, progress=progress)
        (folder / host_platform()).mkdir(parents=True, exist_ok=True)
        (folder / "noarch").mkdir(exist_ok=True)
        with FileLock(folder / _LOCK):
            destination = folder / host_platform() / package.file.name
            indexed = None if _stages(folder) else _find(folder, package.file.name)  # of two, one may be old
            has_file = destination.is_file() and sha256_of(destination) == package.sha256
            if indexed and indexed.sha256 == package.sha256 and has_file:
                return indexed, False
            with replaced_file(destination) as partial:
                shutil.copyfile(package.file, partial)
            progress.begin(f"index {folder}")
            _index(folder)
            progress.end(counted(len(read_channel(folder)), "package"))
            indexed = _find(folder, destination.name)
    if indexed is None:
        fix = "stop other programs that write to the folder, and run the command again"
        raise EnvironmentBuildError("engine-failed", f"the index does not contain {destination.name}", fix, str(folder))
    return indexed, True


def read_channel(folder: Path) -> tuple[ChannelPackage, ...]:
    indexes = sorted(folder.glob(f"*/{_INDEX}"))
    if not indexes:
        raise _not_a_channel("there is no channel in this folder", folder)
    return tuple(
        sorted(_packages(indexes), key=lambda package: (package.name, _version_key(package.version), package.file))
    )


def _packages(indexes: list[Path]) -> Iterator[ChannelPackage]:
    for index in indexes:
        try:
            repodata = read_json(index)
            for file, record in {**repodata.get("packages", {}), **repodata.get("packages.conda", {})}.items():
                yield _package(file, record, index.parent.name)
        except (OSError, ArithmeticError, ValueError, AttributeError, KeyError, TypeError) as error:
            raise _not_a_channel("the index cannot be read", index) from error


def _package(file: str, record: dict[str, Any], subdir: str) -> ChannelPackage:
    return ChannelPackage(
        name=str(record["name"]),
        version=str(record["version"]),
        build=str(record["build"]),
        subdir=subdir,
        file=file,
        size=int(record.get("size", 0)),
        sha256=str(record.get("sha256", "")),
    )


def _version_key(version: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if re.fullmatch("[0-9]{1,18}", part) else (-1, part) for part in version.split("."))


def _find(folder: Path, file: str) -> ChannelPackage | None:
    if not (folder / host_platform() / _INDEX).is_file():
        return None
    packages = read_channel(folder)
    return next((found for found in packages if (found.subdir, found.file) == (host_platform(), file)), None)


def _stages(folder: Path) -> list[Path]:
    return list(folder.glob(f"{_STAGE}*"))


def _index(folder: Path) -> None:
    """Index links to the packages in a temporary folder, then replace the old index by the new one."""
    for stale in _stages(folder):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_STAGE, dir=folder) as temporary:
        stage = Path(temporary)
        packages = [file for file in folder.glob("[!.]*/*") if file.name.endswith(_SUFFIXES)]
        if endless := first_endless(packages):
            raise _not_a_package(endless)
        for package in packages:
            link = stage / package.relative_to(folder)
            link.parent.mkdir(exist_ok=True)
            link_or_copy(str(package), str(link))
        (stage / "noarch").mkdir(exist_ok=True)
        try:
            index_channel(stage)
        except EngineError as error:
            raise _index_error(error, folder, packages) from error
        for platform in sorted(entry for entry in stage.iterdir() if entry.is_dir()):
            _publish(platform, folder / platform.name)


def _index_error(error: EngineError, folder: Path, packages: list[Path]) -> EnvpackError:
    """The error for a failed index; names the damaged package, which the engine does not."""
    damaged = next((file for file in packages if file.suffix == ".conda" and not zipfile.is_zipfile(file)), None)
    if damaged:
        return _not_a_package(damaged)
    what = f"the channel could not be indexed: {error}"
    failed = EnvironmentBuildError("engine-failed", what, ENGINE_HINT, str(folder))
    return refused_by_system(str(error), folder) or failed


def _not_a_package(file: Path) -> EnvironmentBuildError:
    what = "this is not a conda package, so the channel cannot be indexed"
    return EnvironmentBuildError("engine-failed", what, "remove it, or copy the complete file there", str(file))


def _publish(stage: Path, destination: Path) -> None:
    """Move the index of one platform to its destination: parts before the files that name them, `_INDEX` last."""
    files = [file for file in stage.rglob("*") if file.is_file() and not file.name.endswith(_SUFFIXES)]
    for file in sorted(files, key=lambda file: (file.name == _INDEX, len(file.relative_to(stage).parts) == 1, file)):
        target = destination / file.relative_to(stage)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(target) as partial:
            shutil.copyfile(file, partial)


def _not_a_channel(message: str, where: Path) -> InputError:
    fix = "name the folder that contains linux-64; envpack channel add-python makes one"
    return InputError("not-a-channel", message, fix, str(where))
