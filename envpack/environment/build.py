"""From requirements to an environment in the store: the one function that everything else here serves."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.atomic import new_folder, write_text
from envpack.environment.interpreters import Interpreter, check_minor, interpreter_for
from envpack.environment.store import MANIFEST, SCHEMA, Environment, environment_key, read_environment
from envpack.errors import EnvironmentBuildError
from envpack.locations import cache_root
from envpack.progress import Progress, Silent
from envpack.requirements import Requirements

if TYPE_CHECKING:
    from envpack.environment.elf import SystemNeeds

LOCAL = "local"
_GLIBC_HINT = "ask for an older version of it, or take a release with a newer system with --triton"
DEFAULT_GLIBC = "2.35"  # of the official images from 22.04's base on: Ubuntu 22.04


@dataclasses.dataclass(frozen=True)
class _Plan:
    """All that is decided before anything is built."""

    requirements: Requirements
    minor: str
    channels: tuple[str, ...]
    glibc: str
    interpreter: Interpreter | None
    cache: Path
    key: str


def build_environment(
    requirements: Requirements,
    *,
    python: str,
    channels: Sequence[str] = (LOCAL,),
    cache: Path | None = None,
    progress: Progress | None = None,
    glibc: str = DEFAULT_GLIBC,
) -> Environment:
    """Give the environment for some requirements: from the store if it is there, else built now.

    Args:
        requirements: what it must hold.
        python: minor version, for example ``"3.10"``; ``""`` takes the one that the requirements name.
        channels: conda channels in order of preference; ``"local"`` is this machine's own interpreters as packages,
            anything else the URL or path of a channel.
        cache: folder of the store, `envpack.locations.cache_root` by default.
        progress: told of each step; a finished environment takes no step.
        glibc: version of the C library that the environment will meet.

    Raises:
        UsageError: ``python`` is no supported version.
        EnvironmentBuildError: it cannot be solved, installed or started; the store stays as it was.

    """
    progress = progress or Silent()
    plan = _plan(requirements, python or requirements.python, tuple(channels), glibc, cache or cache_root())
    place = plan.cache / "environments" / plan.key
    return read_environment(place) or _build_or_wait(plan, place, progress)


def _build_or_wait(plan: _Plan, place: Path, progress: Progress) -> Environment:
    """One process builds while others wait for it, and then read what it built."""
    from filelock import FileLock

    from envpack.environment.disk import storage_errors

    with storage_errors(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(place.with_name(f".{plan.key}.lock")):
            found = read_environment(place)
            if found:
                return found
            shutil.rmtree(place, ignore_errors=True)  # without a manifest it is nothing
            with new_folder(place) as partial:
                _build(plan, partial, place, progress)
    finished = read_environment(place)
    if finished is None:
        raise EnvironmentBuildError(
            "the environment has vanished",
            kind="environment-broken",
            where=str(place),
            hint="let nothing else write to the cache while it builds, and build again",
        )
    return dataclasses.replace(finished, fresh=True)


def _plan(requirements: Requirements, minor: str, channels: tuple[str, ...], glibc: str, cache: Path) -> _Plan:
    check_minor(minor)
    interpreter = interpreter_for(minor) if LOCAL in channels else None
    key = environment_key(requirements, minor, channels, glibc, interpreter)
    return _Plan(requirements, minor, channels, glibc, interpreter, cache.absolute(), key)


def _build(plan: _Plan, prefix: Path, place: Path, progress: Progress) -> None:
    from envpack.environment.activation import write_activation
    from envpack.environment.conda_package import subdir
    from envpack.environment.installed import installed_packages
    from envpack.environment.inventory import find_owners, take_inventory, write_inventory
    from envpack.environment.relocation import relocate

    _install_conda(plan, prefix, place, progress)
    _install_pip(plan, prefix, progress)
    progress.begin("make the environment relocatable")
    relocate(prefix, (prefix, place), minor=plan.minor)
    write_activation(prefix)
    _compile(plan, prefix)
    version, needs = _checked(plan, prefix)
    owners = find_owners(prefix, plan.minor)
    entries = take_inventory(prefix, owners)
    packages = installed_packages(prefix, plan.minor, entries)
    progress.end(f"{len(packages)} packages")
    manifest = {
        "schema": SCHEMA,
        "key": plan.key,
        "python": version,
        "minor": plan.minor,
        "platform": subdir(),
        "glibc": needs.glibc.version,
        "glibcxx": needs.glibcxx.version,
        "size": sum(entry.size for entry in entries),
        "content": write_inventory(prefix, entries),
        "requirements": {"conda": plan.requirements.conda, "pip": plan.requirements.pip},
        "packages": [dataclasses.asdict(package) for package in packages],
        "changed_hands": [dataclasses.asdict(one) for one in owners.changed],
    }
    write_text(prefix / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True))


def _install_conda(plan: _Plan, prefix: Path, place: Path, progress: Progress) -> None:
    from envpack.environment.channel import local_channel
    from envpack.environment.solve import CondaTarget, install_conda

    python, channels = f"python {plan.minor}.*", []
    for channel in plan.channels:
        if channel == LOCAL and plan.interpreter:
            local = local_channel(plan.interpreter, cache=plan.cache, progress=progress)
            channels.append(str(local.folder))
        else:
            channels.append(channel)
    progress.begin(f"install Python {plan.minor} and {len(plan.requirements.conda)} conda requirements")
    target = CondaTarget(prefix, place, plan.glibc, plan.cache)
    installed = install_conda([python, *plan.requirements.conda], channels, target)
    library = prefix / "lib" / f"libpython{plan.minor}.so.1.0"
    if not library.is_file():
        raise EnvironmentBuildError(
            f"the Python package has no {library.name}, which Triton's stub needs",
            kind="static-interpreter",
            hint="use a channel whose Python is built with --enable-shared, or the channel 'local'",
        )
    progress.end(f"{len(installed)} packages")


def _install_pip(plan: _Plan, prefix: Path, progress: Progress) -> None:
    from envpack.environment.pip import install_pip

    site = _site_packages(prefix, plan.minor)
    site.mkdir(exist_ok=True)
    if plan.interpreter and plan.interpreter.distribution:  # Debian's Python looks into this folder instead
        site.with_name("dist-packages").symlink_to(site.name)
    if plan.requirements.pip:
        progress.begin(f"install {len(plan.requirements.pip)} pip requirements")
        install_pip(plan.requirements.pip, prefix, glibc=plan.glibc)
        progress.end("installed")


def _compile(plan: _Plan, prefix: Path) -> None:
    from envpack.environment.bytecode import compile_tree

    library = Path("lib") / f"python{plan.minor}"
    has_own = plan.channels == (LOCAL,)  # our own packages come with byte code of the right kind
    compile_tree(prefix, library / "site-packages" if has_own else library, minor=plan.minor)


def _checked(plan: _Plan, prefix: Path) -> tuple[str, SystemNeeds]:
    """Start the environment's Python with nothing but itself; full version, and what the files need of a system."""
    from envpack.environment.elf import is_elf, system_needs, version_key
    from envpack.environment.isolation import bare_environment
    from envpack.process import run

    question = "import json, sys; print(json.dumps(['%d.%d.%d' % sys.version_info[:3], sys.prefix, sys.path]))"
    answer = run([prefix / "bin" / "python3", "-I", "-B", "-c", question], env=bare_environment())
    version, root, path = json.loads(answer.stdout) if answer.returncode == 0 else ("", "", [])
    found = {Path(folder).resolve() for folder in path}
    if Path(root).resolve() != prefix.resolve() or _site_packages(prefix, plan.minor).resolve() not in found:
        raise EnvironmentBuildError(
            f"the environment's Python does not start by itself: {answer.last_lines(4)}",
            kind="environment-broken",
            hint="look for a requirement that replaces parts of Python, or use another interpreter of this version",
        )
    needs = system_needs(file for file in sorted(prefix.rglob("*")) if is_elf(file))
    need = needs.glibc
    if version_key(need.version) > version_key(plan.glibc):
        file = need.file.relative_to(prefix) if need.file else ""
        raise EnvironmentBuildError(
            f"{file} needs glibc {need.version}, the target has {plan.glibc}",
            kind="glibc-too-old",
            hint=_GLIBC_HINT,
        )
    return version, needs


def _site_packages(prefix: Path, minor: str) -> Path:
    return prefix / "lib" / f"python{minor}" / "site-packages"
