"""Byte code ahead of time: what a read-only or thrown-away environment cannot make for itself.

Compiling costs more than all else that is done for an environment, so it is done once for each package and kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from envpack.support.errors import EnvironmentBuildError
from envpack.support.isolation import bare_environment
from envpack.support.processes import run
from envpack.support.replacement import link_or_copy, new_folder
from envpack.support.storage_errors import DISK_FULL_TEXT, disk_full
from envpack.support.temp_dirs import temp_dir

_CHILD = Path(__file__).with_name("compile_child.py")
_RECIPE = 3  # counts the changes of how byte code is made
_GROUP = 32  # files that one process compiles


def compile_files(prefix: Path, packages: Iterable[Sequence[str]], python: Path) -> None:
    """Compile Python files of an environment.

    The byte code is valid whatever the time stamps are ("unchecked hash") and names its source relative to the
    environment, so it is the same wherever the environment is built, and that of a package is the same whatever other
    packages are compiled with it. Files that are no Python of this version (test data, templates) are left without.

    Args:
        prefix: root of the environment.
        packages: the sources of each package, relative to ``prefix``.
        python: an interpreter of the environment's minor version that runs here.

    Raises:
        EnvironmentBuildError: ``disk-full``, or ``bytecode-failed`` if the interpreter cannot be started.

    """
    groups = list(_groups(packages))
    if not groups:
        return
    with temp_dir("compile") as scratch:
        listed = scratch / "files"
        listed.write_text("\n\n".join("\n".join(group) for group in groups), encoding="utf-8")
        done = run(
            [python, "-s", "-S", "-B", _CHILD, prefix, listed],
            env=bare_environment() | {"PYTHONHASHSEED": "0"},  # the order of sets is part of byte code
        )
    if DISK_FULL_TEXT in done.stderr:
        raise disk_full(prefix.parent)
    if done.returncode != 0:
        raise EnvironmentBuildError(
            f"Python files could not be compiled: {done.last_lines(2)}",
            kind="bytecode-failed",
            where=str(prefix),
            hint="look for a package that replaces parts of Python's own library",
        )


def _groups(packages: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Groups to be compiled by one process each; they depend on nothing but the package that they are of."""
    for sources in packages:
        ordered = sorted(sources)
        yield from (ordered[start : start + _GROUP] for start in range(0, len(ordered), _GROUP))


def bytecode_path(source: str, minor: str) -> str:
    """Where the byte code of a source lies, both relative to the environment."""
    folder, _, name = source.rpartition("/")
    return f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-{minor.replace('.', '')}.pyc"


def compile_packages(
    prefix: Path, packages: Mapping[str, Sequence[str]], *, minor: str, python: Path, kept: Path
) -> None:
    """Give the sources of packages their byte code: linked if these packages were compiled before, else made now.

    Args:
        prefix: root of the environment.
        packages: the sources of each package, relative to ``prefix``, by a text that names the package's content.
        minor: Python minor version.
        python: an interpreter of that version that runs here.
        kept: folder where byte code is kept for the next environment.

    Raises:
        EnvironmentBuildError: as `compile_files`.

    """
    places = {content: kept / _key(content, minor, sources) for content, sources in packages.items()}
    missing = [content for content, place in places.items() if not place.is_dir()]
    compile_files(prefix, [packages[content] for content in missing], python)
    for content, sources in packages.items():
        made = [bytecode_path(source, minor) for source in sources]
        if content in missing:
            _keep(prefix, made, places[content])
        else:
            _take(places[content], made, prefix)


def _key(content: str, minor: str, sources: Sequence[str]) -> str:
    told = json.dumps([_RECIPE, content, minor, sorted(sources)])
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _keep(prefix: Path, made: Sequence[str], place: Path) -> None:
    from filelock import FileLock

    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place.with_name(f".{place.name}.lock")):
        if place.is_dir():
            return
        with new_folder(place) as partial:
            _take(prefix, made, partial)


def _take(source: Path, made: Sequence[str], target: Path) -> None:
    known: set[str] = set()
    for path in made:
        if not os.path.exists(f"{source}/{path}"):  # noqa: PTH110 - text is faster, and there may be thousands
            continue
        folder = path.rpartition("/")[0]
        if folder not in known:
            os.makedirs(f"{target}/{folder}", exist_ok=True)  # noqa: PTH103
            known.add(folder)
        link_or_copy(f"{source}/{path}", f"{target}/{path}")
