"""Builds a relocatable execution environment from an existing conda or virtual environment."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from envpack.conda.channels import local_channel
from envpack.conda.interpreters import Interpreter, interpreter_at
from envpack.conda.settings import CondaSettings
from envpack.environment.build import Assembly, build_once, find_intact, finish, install
from envpack.environment.checks import refuse_external_references, require_library
from envpack.environment.inventory import UNKNOWN, Owners, ReplacedFile, find_owners
from envpack.environment.prefix_copy import (
    CopyResult,
    changed_files,
    copy_files,
    declared_files,
    named_prefix_paths,
)
from envpack.environment.prefix_files import (
    Prefix,
    PrefixFile,
    activation_variables,
    content_digest,
    detect_prefix,
    hash_files,
    list_files,
)
from envpack.environment.store import Environment
from envpack.lock.lockfile import RECIPE, Lock
from envpack.lock.resolve import LockOptions
from envpack.requirements.model import CondaPackage
from envpack.requirements.target import Target
from envpack.support.entry_locks import ingredients_in_use, mark_used
from envpack.support.errors import EnvironmentBuildError, InputError, require_programs, storage_errors
from envpack.support.folders import cache_folder, cache_root
from envpack.support.platforms import host_platform
from envpack.support.progress import SILENT, Progress
from envpack.support.text import counted

_LAYOUT = 3  # raised when the way of copying an environment changes


def environment_from_prefix(
    root: Path,
    *,
    glibc: str,
    python: str = "",
    platform: str = "",
    progress: Progress = SILENT,
    strip: bool = False,
) -> Environment:
    """The copy of an existing environment in the store, which is made if the original has changed."""
    prefix = detect_prefix(root)
    target = Target(platform or host_platform(), prefix.minor, glibc)
    _refuse_other(prefix, target, python)
    top = cache_root()
    base = _base(prefix)
    with ingredients_in_use(top):
        with storage_errors(prefix.root):
            files = list_files(prefix)
            digests = hash_files(prefix, files, _memory(prefix, top))
        mark_used(_memory(prefix, top))
        lock = Lock(target, (), (_python_package(prefix, base, progress, top),), ())
        key = _key(lock, files, digests) + ("-stripped" if strip else "")
        folder = cache_folder("environments", top) / key
        if found := find_intact(folder, top, progress):
            return found
        require_programs(folder.parent)
        options = LockOptions(channels=(), settings=CondaSettings(), cache=top)
        assembly = Assembly(lock=lock, options=options, variables={}, strip=strip, progress=progress, key=key)
        with _what_points_outside(prefix):
            return build_once(folder, lambda partial: _copy(prefix, files, digests, assembly, partial), progress)


def _refuse_other(prefix: Prefix, target: Target, python: str) -> None:
    if prefix.platform != target.platform:
        what = f"it is for {prefix.platform}, the target is {target.platform}"
        fix = f"make one on a machine with that platform, or give --platform {prefix.platform}"
        raise InputError("other-platform", what, fix, str(prefix.root))
    if python not in ("", prefix.minor):
        what = f"it holds Python {prefix.minor}, the model is for {python}"
        raise InputError("other-python", what, f"give --python {prefix.minor}", str(prefix.root))


def _base(prefix: Prefix) -> Interpreter | None:
    if prefix.home is None:
        return None
    # Virtualenv up to 20.13 names the folder above.
    programs = [prefix.home / name for name in (f"python{prefix.minor}", f"bin/python{prefix.minor}", "python3")]
    try:
        return interpreter_at(next((one for one in programs if one.is_file()), programs[0]), prefix.minor)
    except EnvironmentBuildError as error:
        what = f"the Python that it was created from cannot be used: {error.message}"
        fix = f"create it with a Python of this machine that has a shared library (pyvenv.cfg names {prefix.home})"
        raise InputError("prefix-unsupported", what, fix, str(prefix.root)) from error


def _memory(prefix: Prefix, cache: Path) -> Path:
    return cache_folder("prefixes", cache) / f"{hashlib.sha256(os.fsencode(prefix.root)).hexdigest()[:32]}.json"


def _python_package(prefix: Prefix, base: Interpreter | None, progress: Progress, cache: Path) -> CondaPackage:
    if base is None:
        record = next(record for record in prefix.records if record["name"] == "python")
        return CondaPackage(
            name="python", version=prefix.version, build=str(record.get("build", "")), subdir=prefix.platform, url=""
        )
    made = local_channel(base, cache=cache, progress=progress)
    return CondaPackage(
        name="python",
        version=made.version,
        build=made.build,
        subdir=prefix.platform,
        url=made.file.as_uri(),
        sha256=made.sha256,
        license="Python-2.0",
    )


def _key(lock: Lock, files: Sequence[PrefixFile], digests: dict[str, str]) -> str:
    key_parts = [RECIPE, _LAYOUT, dataclasses.asdict(lock.target), lock.key, content_digest(files, digests)]
    return hashlib.sha256(json.dumps(key_parts).encode()).hexdigest()[:32]


def _copy(
    prefix: Prefix, files: tuple[PrefixFile, ...], digests: Mapping[str, str], assembly: Assembly, folder: Path
) -> None:
    progress = assembly.progress
    refuse_external_references(prefix.root, prefix.minor, find_owners(prefix.root, prefix.minor))
    if prefix.home is not None:
        install(assembly, folder)
    progress.begin(f"copy {counted(len(files), 'file')} of {prefix.root}")
    prefix_paths, declared = named_prefix_paths(prefix), declared_files(prefix)
    copied = copy_files(prefix.root, files, folder, prefix_paths, declared, progress=progress)
    if list_files(prefix) != files:
        fix = "wait until the installation into it has ended, and build again"
        raise InputError("prefix-changed", "it changed while it was copied", fix, str(prefix.root))
    changed = changed_files(prefix, declared, digests, prefix_paths)
    progress.end(_outcome(len(changed), copied, activation_variables(prefix.root)))
    require_library(folder, prefix.minor)
    finish(
        assembly,
        folder,
        prefix_paths=prefix_paths,
        changed=copied.changed,
        adopt=lambda owners: _adopted(owners, files, copied, changed),
    )


@contextlib.contextmanager
def _what_points_outside(prefix: Prefix) -> Iterator[None]:
    try:
        yield
    except EnvironmentBuildError as error:
        if error.kind == "points-outside":
            error.where = str(prefix.root)
            error.hint = (
                "install what is there as a package, without -e: pip install FOLDER; and remove a line that adds it"
            )
        raise


def _outcome(changed: int, copied: CopyResult, variables: Sequence[str]) -> str:
    notes = [f"{changed} of them differ from their packages"] if changed else []
    if copied.left:
        notes.append(f"{len(copied.left)} binaries contain the old folder, such as {copied.left[0]}")
    if variables:
        notes.append(f"variables that conda sets are not copied: {', '.join(variables)}; set them in the model")
    return "; ".join(notes) or "copied"


def _adopted(owners: Owners, files: Sequence[PrefixFile], copied: CopyResult, drift: Sequence[ReplacedFile]) -> Owners:
    """Owners of a copied environment, with unlisted and edited files; byte code is compiled again."""
    of = {file.path: UNKNOWN for file in files} | owners.of
    replaced = {replaced.path for replaced in owners.changed}
    edited = [file for file in drift if file.path not in replaced]
    changed = [replaced for replaced in (*owners.changed, *edited) if not replaced.path.endswith(".pyc")]
    return Owners(
        of,
        tuple(sorted(changed, key=lambda replaced: (replaced.path, replaced.before))),
        owners.placeholders | copied.placeholders,
    )
