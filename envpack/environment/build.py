"""Builds execution environments from requirements or a lock, in an empty folder of the store, which keeps each one."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from envpack.conda.bytecode import bytecode_path, compile_packages
from envpack.conda.channels import local_channel
from envpack.conda.choice import interpreter_for
from envpack.conda.engine import PREFIX_PLACEHOLDER, install_conda, is_locked_file
from envpack.conda.interpreter_package import fingerprint
from envpack.conda.interpreters import Interpreter, available_interpreters
from envpack.environment.checks import (
    check_consistency,
    cuda_libraries,
    environment_needs,
    hidden_libraries,
    numpy_abi,
    refuse_external_references,
    refuse_lost_extras,
    require_library,
    started_version,
)
from envpack.environment.inventory import (
    Entry,
    Owners,
    find_owners,
    installed_packages,
    take_inventory,
    write_inventory,
)
from envpack.environment.records import damaged_wheels
from envpack.environment.relocation import relocate, update_records, write_activation
from envpack.environment.store import (
    SCHEMA,
    Environment,
    damaged_files,
    disappeared,
    discard,
    read_environment,
    write_index,
)
from envpack.lock.lockfile import Lock
from envpack.lock.pip import install_pip
from envpack.lock.resolve import LockOptions
from envpack.requirements.location import can_read, local_file
from envpack.requirements.model import CondaPackage
from envpack.support.elf import AbiRequirements, strip_environment, version_key
from envpack.support.entry_locks import being_made, ingredients_in_use, mark_used
from envpack.support.errors import EnvironmentBuildError, require_programs, storage_errors
from envpack.support.folders import cache_folder
from envpack.support.links_and_modes import protect
from envpack.support.placed_files import MANIFEST
from envpack.support.platforms import this_machine
from envpack.support.progress import Progress
from envpack.support.replacement import replaced_folder, write_text
from envpack.support.text import counted, normalise_name
from envpack.support.uv import NO_VARIABLES


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The lock to install, and the settings to install it with."""

    lock: Lock
    options: LockOptions  # with the cache, and the user's settings for conda
    variables: Mapping[str, str]  # for uv, see `Requirements.download_variables`; they may contain passwords
    strip: bool  # whether to remove debug information from libraries and programs
    progress: Progress  # receives each step
    key: str = ""  # key of the environment in the store, if more than the lock decides its content

    @property
    def runs_here(self) -> bool:
        return self.lock.target.machine == this_machine()


def assemble(assembly: Assembly, prefix: Path) -> None:
    """Fill an empty folder with the environment; the manifest comes last and marks it as complete."""
    install(assembly, prefix)
    finish(assembly, prefix)


def finish(
    assembly: Assembly,
    prefix: Path,
    *,
    prefix_paths: Sequence[Path] = (),
    changed: Set[Path] = frozenset(),
    adopt: Callable[[Owners], Owners] = lambda owners: owners,
) -> None:
    minor = assembly.lock.target.python
    assembly.progress.begin("make the environment relocatable")
    relocate(
        prefix, (prefix, Path(PREFIX_PLACEHOLDER), *prefix_paths, _python(assembly, prefix).parent.parent), minor=minor
    )
    update_records(prefix, {*changed, *(strip_environment(prefix) if assembly.strip else ())})
    write_activation(prefix)
    owners = adopt(find_owners(prefix, minor))
    refuse_external_references(prefix, minor, owners)
    if assembly.runs_here:
        version = started_version(prefix, minor)
    else:
        version = next(package.version for package in assembly.lock.conda if package.name == "python")
    compile_sources(
        prefix,
        owners,
        assembly.lock,
        python=_python(assembly, prefix),
        cache=cache_folder("bytecode", assembly.options.cache),
    )
    entries = take_inventory(prefix, owners, assembly.progress)
    needs = _checked_needs(assembly, prefix, entries)
    _write_manifest(assembly, prefix, version, needs, owners, entries)
    protect(prefix)
    assembly.progress.end(counted(len(entries), "file"))


def install(assembly: Assembly, prefix: Path) -> None:
    lock, minor = assembly.lock, assembly.lock.target.python
    conda = [_located(package, assembly) for package in lock.conda]  # which may be a step of its own
    assembly.progress.begin(f"install {counted(len(lock.conda), 'conda package')}")
    options = assembly.options
    install_conda(
        conda,
        prefix,
        lock.target,
        settings=options.settings,
        credentials=options.credentials,
        cache=options.cache,
        progress=assembly.progress,
    )
    require_library(prefix, minor)
    assembly.progress.end("installed")
    (prefix / "lib" / f"python{minor}" / "site-packages").mkdir(exist_ok=True)
    if lock.pip:
        if assembly.runs_here:
            started_version(prefix, minor)  # uv starts it, too, and would wait for it without a limit
        assembly.progress.begin(f"install {counted(len(lock.pip), 'wheel')}")
        for package in lock.pip:
            file = local_file(package.url)
            if file and file.parent.parent == cache_folder("wheels", assembly.options.cache):
                mark_used(file.parent)
        _install_wheels(assembly, prefix)
        if assembly.runs_here:
            check_consistency(prefix, prefix / "bin" / "python3")
        refuse_lost_extras(prefix, lock.target)
        assembly.progress.end("installed")


def _install_wheels(assembly: Assembly, prefix: Path) -> None:
    """Install wheels from uv's cache as far as it has them, whose files other programs may have changed."""
    lock, python, variables = assembly.lock, _python(assembly, prefix), assembly.variables
    install_pip(lock.pip, prefix, lock.target, python=python, variables=variables)
    differing = damaged_wheels(prefix, lock.target.python)
    if again := [package for package in lock.pip if package.name in differing]:
        install_pip(again, prefix, lock.target, python=python, variables=variables, cached=False)
        as_published = damaged_wheels(prefix, lock.target.python)
        if names := " ".join(package.name for package in again if package.name not in as_published):
            what = "files were changed in uv's cache, which was not used"
            assembly.progress.detail(f"{what}: `uv cache clean {names}` mends it")


def _located(package: CondaPackage, assembly: Assembly) -> CondaPackage:
    """The package at its present location, if its local channel was on another machine, was removed or made again."""
    file = local_file(package.url)
    if file is None or (can_read(file) and is_locked_file(package, file)):
        return package
    for other in sorted(cache_folder("channel", assembly.options.cache).glob(f"*/{package.subdir}/{file.name}")):
        if is_locked_file(package, other):
            mark_used(other.parent.parent)
            return dataclasses.replace(package, url=other.as_uri())
    if package.build.startswith("local_"):
        for interpreter in _candidates(assembly):
            if package.build == f"local_{fingerprint(interpreter)}":
                again = local_channel(interpreter, cache=assembly.options.cache, progress=assembly.progress)
                # Other versions of the tools that pack the same interpreter give another hash.
                return dataclasses.replace(package, url=again.file.as_uri(), sha256=again.sha256)
    if can_read(file):
        return package  # its installation reports the other hash
    if package.build.startswith("local_"):
        what = f"the lock names a Python {package.version} of another machine, and this one does not have the same"
        fix = (
            f"run `envpack lock` on this machine; or where it was made: `envpack channel add-python "
            f"{assembly.lock.target.python} --to FOLDER`, and lock with --channel and an address of that folder"
        )
        raise EnvironmentBuildError("package-missing", what, fix, str(file))
    what = f"conda package {package.name} {package.version} is not on this machine"
    fix = "copy the channel to this path; or serve it over HTTP, and lock again with --channel ADDRESS"
    raise EnvironmentBuildError("package-missing", what, fix, str(file))


def _candidates(assembly: Assembly) -> Iterator[Interpreter]:
    yield from available_interpreters()
    with contextlib.suppress(EnvironmentBuildError):
        yield assembly.options.interpreter(assembly.lock.target, assembly.progress)


def _python(assembly: Assembly, prefix: Path) -> Path:
    """An interpreter of the same minor version that this machine can run."""
    if assembly.runs_here:
        return prefix / "bin" / "python3"
    minor, preference = assembly.lock.target.python, assembly.options.python_preference
    return interpreter_for(minor, preference=preference, progress=assembly.progress).executable


def _checked_needs(assembly: Assembly, prefix: Path, entries: Sequence[Entry]) -> AbiRequirements:
    """What the files require of a system; an error if the target's C library is too old."""
    needs = environment_needs(prefix, entries, cache_folder("needs", assembly.options.cache))
    target = assembly.lock.target
    if version_key(needs.glibc) > version_key(target.glibc):
        file = needs.file.relative_to(prefix) if needs.file else ""
        what = f"{file} needs glibc {needs.glibc}, the target has {target.glibc}"
        newer = f"choose a release whose image has glibc {needs.glibc}, if there is one, with --triton"
        raise EnvironmentBuildError("glibc-too-old", what, f"require an older version of the package, or {newer}")
    return needs


def _write_manifest(
    assembly: Assembly, prefix: Path, version: str, needs: AbiRequirements, owners: Owners, entries: Sequence[Entry]
) -> None:
    target = assembly.lock.target
    packages = installed_packages(prefix, target.python, entries, assembly.lock)
    manifest = {
        "schema": SCHEMA,
        "key": assembly.key or assembly.lock.environment_key(strip=assembly.strip),
        "python": version,
        "minor": target.python,
        "platform": target.platform,
        "glibc": needs.glibc,
        "glibcxx": needs.glibcxx,
        "numpy_abi": numpy_abi(packages),
        "cuda_libraries": cuda_libraries(entries),
        "hidden_libraries": hidden_libraries(entries),  # the loader finds these before the system's
        "size": sum(entry.size for entry in entries),
        "content": write_inventory(prefix, entries),
        "stand_ins": sum(bool(entry.placeholder) for entry in entries),  # files that contain the prefix placeholder
        "packages": [dataclasses.asdict(package) for package in packages],
        "changed_hands": [dataclasses.asdict(replaced) for replaced in owners.changed],
    }
    write_text(prefix / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True))


_UNCHECKED_HASH = b"\x01\0\0\0"  # flags of byte code that Python never compares with its source, PEP 552


def compile_sources(prefix: Path, owners: Owners, lock: Lock, *, python: Path, cache: Path) -> None:
    """Write byte code for the modules of all packages, except those that will change when the environment is placed."""
    minor = lock.target.python
    _remove_stale(prefix, owners, minor)
    sources: dict[str, list[str]] = {}
    for path, package in owners.of.items():
        if _is_wanted(prefix, path, minor, owners):
            sources.setdefault(package, []).append(path)
    hashes = _hashes(lock, owners)
    named = {hashes.get(name) or _digest(prefix, paths): paths for name, paths in sources.items()}
    compile_packages(prefix, named, minor=minor, python=python, cache=cache)


def _hashes(lock: Lock, owners: Owners) -> dict[str, str]:
    """The hashes of the packages whose modules are those of the package alone, by name.

    A file that several packages install belongs to the one that was installed last, but installers write several
    packages at once.
    """
    found = {normalise_name(package.name): package.sha256 or package.md5 for package in lock.conda}
    found |= {package.name: package.sha256 for package in lock.pip}
    shared = {owner.partition(" ")[2] for file in owners.changed for owner in (file.before, file.after)}
    return {name: digest for name, digest in found.items() if name not in shared}


def _remove_stale(prefix: Path, owners: Owners, minor: str) -> None:
    """Remove a package's byte code that Python would run in place of a source with the real prefix."""
    for path in owners.placeholders:
        if path.endswith(".py"):
            compiled = prefix / bytecode_path(path, minor)
            if _is_unchecked(compiled):
                compiled.unlink()


def _is_wanted(prefix: Path, path: str, minor: str, owners: Owners) -> bool:
    """Whether a file is a module without byte code of its package; envpack's Python packages contain such byte code."""
    return (
        path.endswith(".py")
        and path.startswith(f"lib/python{minor}/")
        and path not in owners.placeholders  # byte code would keep the placeholder
        and (prefix / path).is_file()
        and not _is_unchecked(prefix / bytecode_path(path, minor))
    )


def _is_unchecked(compiled: Path) -> bool:
    try:
        with compiled.open("rb") as content:
            return content.read(8)[4:] == _UNCHECKED_HASH
    except FileNotFoundError:
        return False


def _digest(prefix: Path, sources: Sequence[str]) -> str:
    """Digest of sources that are not known by the hash of a package; a name alone would match other versions."""
    digests = [[path, hashlib.sha256((prefix / path).read_bytes()).hexdigest()] for path in sorted(sources)]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def find_environment(lock: Lock, cache: Path, *, strip: bool = False) -> Environment | None:
    return read_environment(_entry(lock, cache, strip=strip))


def environment_of(
    lock: Lock,
    options: LockOptions,
    progress: Progress,
    *,
    variables: Mapping[str, str] = NO_VARIABLES,
    strip: bool = False,
    fill: Callable[[Path], None] | None = None,
) -> Environment:
    """Return the environment of a lock from the store; build it there, or fill it, if it is missing."""
    folder = _entry(lock, options.cache, strip=strip)
    if found := find_intact(folder, options.cache, progress):
        return found
    if fill is not None:
        return build_once(folder, fill, progress)

    require_programs(folder.parent)

    assembly = Assembly(lock=lock, options=options, variables=variables, strip=strip, progress=progress)
    with ingredients_in_use(options.cache):
        return build_once(folder, lambda unfinished: assemble(assembly, unfinished), progress)


def _entry(lock: Lock, cache: Path, *, strip: bool) -> Path:
    return cache_folder("environments", cache) / lock.environment_key(strip=strip)


def find_intact(folder: Path, cache: Path, progress: Progress) -> Environment | None:
    """The environment in a folder of the store if none of its files was changed; a damaged one is removed."""
    found = read_environment(folder)
    if found is None:
        return None
    if damaged_files(folder):
        with storage_errors(folder), being_made(folder):
            damaged = damaged_files(folder)  # another process may have mended it
            if damaged:
                more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
                progress.detail(f"{folder / damaged[0]} was changed{more}; the environment is made again")
                discard(folder, damaged, cache)
        return read_environment(folder)
    mark_used(folder)
    return found


def build_once(folder: Path, fill: Callable[[Path], None], progress: Progress) -> Environment:
    """Build an environment in the store; other processes that need it wait until it is complete."""
    waiting = partial(progress.detail, "wait for another process that makes the same environment")
    with storage_errors(folder.parent), being_made(folder, waiting):
        if found := read_environment(folder):
            return found
        with replaced_folder(folder) as unfinished, _places_in(unfinished):
            fill(unfinished)
        write_index(folder)
        finished = read_environment(folder)
    if finished is None:
        raise disappeared(folder)
    return dataclasses.replace(finished, fresh=True)


@contextlib.contextmanager
def _places_in(prefix: Path) -> Iterator[None]:
    """Name files of an environment in errors by their path in it: a build that fails removes the folder."""
    try:
        yield
    except EnvironmentBuildError as error:
        if not Path(error.where).is_relative_to(prefix):
            raise
        place = error.where.removeprefix(str(prefix)).removeprefix("/")
        raise EnvironmentBuildError(error.kind, error.message, error.hint, place, details=error.details) from error
