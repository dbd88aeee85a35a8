"""Making an environment from a lock in an empty folder: installed, relocatable, compiled, checked and listed."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import platform as host
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envpack.conda import PREFIX_PLACEHOLDER, CondaSettings, Credentials, install_conda
from envpack.environment.abi_requirements import cuda_libraries, environment_needs, hidden_libraries, numpy_abi
from envpack.environment.checks import check_consistency, refuse_external_references, require_library
from envpack.environment.install import install_pip
from envpack.environment.inventory import (
    Entry,
    Owners,
    find_owners,
    installed_packages,
    take_inventory,
    write_inventory,
)
from envpack.environment.relocation import relocate, update_records, write_activation
from envpack.environment.store import MANIFEST, SCHEMA
from envpack.lock import Lock
from envpack.pythons import compile_packages, fingerprint, interpreter_for, local_channel
from envpack.requirements import CondaPackage
from envpack.support.elf import AbiRequirements, strip_environment, version_key
from envpack.support.errors import EnvironmentBuildError
from envpack.support.isolation import bare_environment
from envpack.support.processes import run
from envpack.support.progress import Progress
from envpack.support.replacement import write_text
from envpack.support.text import normalise_name

_GLIBC_HINT = "ask for an older version of it, or take a release with a newer system with --triton"


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """What an environment is made of, and with what.

    Attributes:
        lock: its packages.
        cache: root of the cache.
        settings: the user's settings for conda.
        credentials: passwords and tokens for channels, by host.
        indexes: lines of a requirements file that say where wheels come from; they may hold passwords.
        strip: whether libraries and programs lose their debug information.
        progress: told of each step.
        key: names the environment in the store, where more than the lock decides what it holds.

    """

    lock: Lock
    cache: Path
    settings: CondaSettings
    credentials: Credentials
    indexes: tuple[str, ...]
    strip: bool
    progress: Progress
    key: str = ""

    @property
    def runs_here(self) -> bool:
        """Whether programs of the target start on this machine."""
        return self.lock.target.machine == host.machine()


def assemble(how: Assembly, prefix: Path) -> None:
    """Fill an empty folder with the environment; the manifest comes last, so that it says that all is there.

    Raises:
        EnvironmentBuildError: a package cannot be had or installed, or the result is none that a server could use.

    """
    install(how, prefix)
    finish(how, prefix)


def finish(
    how: Assembly,
    prefix: Path,
    *,
    prefix_paths: Sequence[Path] = (),
    changed: Set[Path] = frozenset(),
    adopt: Callable[[Owners], Owners] = lambda owners: owners,
) -> None:
    """Make what was installed an environment that can be moved: relocatable, compiled, checked and listed.

    Args:
        how: what it is made of.
        prefix: the folder that packages were installed to.
        prefix_paths: more folders that its scripts may name as their own.
        changed: files that are not as their packages brought them, though the records should say they are.
        adopt: says of whom files are that have no installation record.

    Raises:
        EnvironmentBuildError: it is none that a server could use.

    """
    minor = how.lock.target.python
    how.progress.begin("make the environment relocatable")
    relocate(prefix, (prefix, Path(PREFIX_PLACEHOLDER), *prefix_paths, _python(how, prefix).parent.parent), minor=minor)
    update_records(prefix, {*changed, *(strip_environment(prefix) if how.strip else ())})
    write_activation(prefix)
    owners = adopt(find_owners(prefix, minor))
    refuse_external_references(prefix, minor, owners)
    _compile(how, prefix, owners)
    version = _started(prefix, minor) if how.runs_here else _said_version(how.lock)
    entries = take_inventory(prefix, owners)
    needs = _checked_needs(how, prefix, entries)
    _write_manifest(how, prefix, version, needs, owners, entries)
    how.progress.end(f"{len(entries)} files")


def install(how: Assembly, prefix: Path) -> None:
    """Install the packages of a lock into an empty folder.

    Raises:
        EnvironmentBuildError: a package cannot be had or installed.

    """
    lock, minor = how.lock, how.lock.target.python
    how.progress.begin(f"install {len(lock.conda)} conda packages")
    conda = [_at_hand(package, how) for package in lock.conda]
    install_conda(conda, prefix, lock.target, settings=how.settings, credentials=how.credentials, cache=how.cache)
    require_library(prefix, minor)
    how.progress.end("installed")
    _site_packages(prefix, minor).mkdir(exist_ok=True)
    if lock.pip:
        how.progress.begin(f"install {len(lock.pip)} wheels")
        install_pip(lock.pip, prefix, lock.target, python=_python(how, prefix), indexes=how.indexes)
        if how.runs_here:
            check_consistency(prefix, prefix / "bin" / "python3")
        how.progress.end("installed")


def _at_hand(package: CondaPackage, how: Assembly) -> CondaPackage:
    """The package where it lies now, if it came from a local channel: of another machine, or of one that is gone."""
    address = urlsplit(package.url)
    file = Path(unquote(address.path))
    if address.scheme != "file" or file.is_file():
        return package
    for other in sorted((how.cache / "channel").glob(f"*/{package.subdir}/{file.name}")):
        return dataclasses.replace(package, url=other.as_uri())
    if package.build.startswith("local_"):
        with contextlib.suppress(EnvironmentBuildError):
            interpreter = interpreter_for(how.lock.target.python)
            if package.build == f"local_{fingerprint(interpreter)}":
                again = local_channel(interpreter, cache=how.cache, progress=how.progress).package
                return dataclasses.replace(package, url=again.file.as_uri())
    raise EnvironmentBuildError(
        f"conda package {package.name} {package.version} is not on this machine",
        kind="package-missing",
        where=str(file),
        hint="lock again; or copy that channel here, or serve it over http, and lock with its address as --channel",
    )


def _python(how: Assembly, prefix: Path) -> Path:
    """An interpreter of the right minor version that starts here."""
    return prefix / "bin" / "python3" if how.runs_here else interpreter_for(how.lock.target.python).executable


def _compile(how: Assembly, prefix: Path, owners: Owners) -> None:
    minor = how.lock.target.python
    sources: dict[str, list[str]] = {}
    for path, package in owners.of.items():
        if path.startswith(f"lib/python{minor}/") and path.endswith(".py") and _is_wanted(prefix, path, minor):
            sources.setdefault(package, []).append(path)
    contents = {normalise_name(package.name): package.sha256 or package.md5 for package in how.lock.conda}
    contents |= {package.name: package.sha256 for package in how.lock.pip}
    named = {contents.get(name) or _digest(prefix, paths): paths for name, paths in sources.items()}
    compile_packages(prefix, named, minor=minor, python=_python(how, prefix), cache=how.cache / "bytecode")


def _digest(prefix: Path, sources: Sequence[str]) -> str:
    """Names the content of sources that belong to no package of the lock: a name alone would fit other versions."""
    told = [[path, hashlib.sha256((prefix / path).read_bytes()).hexdigest()] for path in sorted(sources)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _is_wanted(prefix: Path, path: str, minor: str) -> bool:
    """Whether a source is there and has no byte code of the right kind, as our own Python packages bring it."""
    file = prefix / path
    if not file.is_file():
        return False
    compiled = file.parent / "__pycache__" / f"{file.stem}.cpython-{minor.replace('.', '')}.pyc"
    try:
        with compiled.open("rb") as content:
            flags = content.read(8)[4:]
    except FileNotFoundError:
        return True
    return flags != b"\x01\0\0\0"  # unchecked hash, PEP 552


def _started(prefix: Path, minor: str) -> str:
    """Start the environment's Python with nothing but itself; the full version that it says."""
    question = "import json, sys; print(json.dumps(['%d.%d.%d' % sys.version_info[:3], sys.prefix, sys.path]))"
    answer = run([prefix / "bin" / "python3", "-I", "-B", "-c", question], env=bare_environment())
    version, root, path = json.loads(answer.stdout) if answer.returncode == 0 else ("", "", [])
    found = {Path(folder).resolve() for folder in path}
    if Path(root).resolve() != prefix.resolve() or _site_packages(prefix, minor).resolve() not in found:
        raise EnvironmentBuildError(
            f"the environment's Python does not start by itself: {answer.last_lines(4)}",
            kind="environment-broken",
            hint="look for a requirement that replaces parts of Python, or use another interpreter of this version",
        )
    return str(version)


def _said_version(lock: Lock) -> str:
    return next(package.version for package in lock.conda if package.name == "python")


def _checked_needs(how: Assembly, prefix: Path, entries: Sequence[Entry]) -> AbiRequirements:
    """What the files need of a system; refused if the target's C library cannot give it."""
    needs = environment_needs(prefix, entries, how.cache / "needs")
    need, target = needs.glibc, how.lock.target
    if version_key(need.version) > version_key(target.glibc):
        file = need.file.relative_to(prefix) if need.file else ""
        raise EnvironmentBuildError(
            f"{file} needs glibc {need.version}, the target has {target.glibc}",
            kind="glibc-too-old",
            hint=_GLIBC_HINT,
        )
    return needs


def _write_manifest(
    how: Assembly, prefix: Path, version: str, needs: AbiRequirements, owners: Owners, entries: Sequence[Entry]
) -> None:
    target = how.lock.target
    packages = installed_packages(prefix, target.python, entries, how.lock)
    manifest = {
        "schema": SCHEMA,
        "key": how.key or how.lock.environment_key(strip=how.strip),
        "python": version,
        "minor": target.python,
        "platform": target.platform,
        "glibc": needs.glibc.version,
        "glibcxx": needs.glibcxx.version,
        "numpy_abi": numpy_abi(packages),
        "cuda_libraries": cuda_libraries(entries),
        "hidden_libraries": hidden_libraries(entries),
        "size": sum(entry.size for entry in entries),
        "content": write_inventory(prefix, entries),
        "stand_ins": sum(bool(entry.placeholder) for entry in entries),
        "packages": [dataclasses.asdict(package) for package in packages],
        "changed_hands": [dataclasses.asdict(replaced) for replaced in owners.changed],
    }
    write_text(prefix / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True))


def _site_packages(prefix: Path, minor: str) -> Path:
    return prefix / "lib" / f"python{minor}" / "site-packages"
