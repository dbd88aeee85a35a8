"""Ahead-of-time byte code, which a read-only or short-lived environment cannot write itself.

Compiling is the slowest step of building an environment, so the byte code of each package is kept in the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from envpack.conda.probe import ProbeMemory
from envpack.support.bounded_reading import read_json, sha256_of
from envpack.support.entry_locks import being_made, in_use
from envpack.support.errors import EnvironmentBuildError
from envpack.support.processes import bare_environment, run
from envpack.support.replacement import link_or_copy, replaced_folder, write_text
from envpack.support.temp_dirs import temp_dir

_CHILD = Path(__file__).with_name("compile_child.py")
_RECIPE = 5  # increased whenever the same source gives other byte code
_DIGESTS = "digests.json"  # SHA-256 of the files of an entry, by their paths below it
_GROUP = 32  # files for each process


def compile_files(prefix: Path, packages: Iterable[Sequence[str]], python: Path) -> None:
    """Compile files to byte code without time stamps and folders; what this Python cannot parse gets none."""
    groups = list(_groups(packages))
    if not groups:
        return
    with temp_dir("compile") as folder:
        file_list = folder / "files"
        # Names of files can contain everything else, and need not be text.
        file_list.write_bytes(os.fsencode("\0\0".join("\0".join(group) for group in groups)))
        completed = run(
            [python, "-s", "-S", "-B", "-X", f"pycache_prefix={folder}", _CHILD, prefix, file_list],
            env=bare_environment() | {"PYTHONHASHSEED": "0"},  # byte code contains sets in their order
        )
    if completed.returncode != 0:
        what = f"Python files could not be compiled: {completed.last_lines(2)}"
        fix = "check for a package that replaces modules of Python's standard library"
        refused = completed.refused_by_system(prefix.parent)
        raise refused or EnvironmentBuildError("bytecode-failed", what, fix, str(prefix))


def _groups(packages: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """The files for each process; the groups of a package do not depend on other packages."""
    for sources in packages:
        ordered = sorted(sources)
        yield from (ordered[start : start + _GROUP] for start in range(0, len(ordered), _GROUP))


def bytecode_path(source: str, minor: str) -> str:
    """The path of a source's byte code, both relative to the environment."""
    folder, _, name = source.rpartition("/")
    return f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-{minor.replace('.', '')}.pyc"


def compile_packages(
    prefix: Path, packages: Mapping[str, Sequence[str]], *, minor: str, python: Path, cache: Path
) -> None:
    """Write the byte code of packages: linked from the cache, or compiled and added to it."""
    facts, entries = ProbeMemory().facts(python), {}
    version = facts["version"] if facts else minor  # a patch release may mend the compiler
    for content, sources in packages.items():
        key_parts = json.dumps([_RECIPE, content, version, sorted(sources)])
        entries[content] = cache / hashlib.sha256(key_parts.encode()).hexdigest()[:32]
    files = {content: [bytecode_path(source, minor) for source in sources] for content, sources in packages.items()}
    missing = [content for content, entry in entries.items() if not _linked(entry, files[content], prefix)]
    compile_files(prefix, [packages[content] for content in missing], python)
    for content in missing:
        _add_entry(entries[content], files[content], prefix)


def differing_files(entry: Path) -> list[str]:
    """The changed files of an entry, as paths below it; raises what reading a missing or damaged file raises."""
    return [path for path, digest in read_json(entry / _DIGESTS).items() if sha256_of(entry / path) != digest]


def _is_intact(entry: Path) -> bool:
    """Whether the cache has an entry as it was made: Python runs byte code without a look at the source."""
    try:
        return not differing_files(entry)
    except (OSError, ValueError, AttributeError):
        return False


def _linked(entry: Path, files: Sequence[str], prefix: Path) -> bool:
    """Link the byte code of a package into an environment; whether the cache has it."""
    with in_use(entry):
        if not _is_intact(entry):
            return False
        _link_files(entry, files, prefix)
        return True


def _add_entry(entry: Path, files: Sequence[str], prefix: Path) -> None:
    with being_made(entry):
        if _is_intact(entry):
            return
        with replaced_folder(entry) as partial:
            _link_files(prefix, files, partial)
            digests = {path: sha256_of(partial / path) for path in files if (partial / path).exists()}
            write_text(partial / _DIGESTS, json.dumps(digests))


def _link_files(source: Path, files: Sequence[str], target: Path) -> None:
    created: set[str] = set()
    for path in files:
        if not os.path.exists(f"{source}/{path}"):  # noqa: PTH110 - text is faster than Path, and there may be thousands of files
            continue
        folder = path.rpartition("/")[0]
        if folder not in created:
            os.makedirs(f"{target}/{folder}", exist_ok=True)  # noqa: PTH103
            created.add(folder)
        link_or_copy(f"{source}/{path}", f"{target}/{path}")
