"""From requirements to a lock: the local channel, the conda part, then the pip part on top of it."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.conda import Channels, CondaSettings, Credentials
from envpack.lock.model import Lock
from envpack.lock.requirements_digest import digest_requirements
from envpack.pythons import interpreter_for
from envpack.requirements import CondaPackage, PipPackage, Requirements, Target, host_platform
from envpack.support.errors import InputError, UsageError
from envpack.support.progress import Progress
from envpack.support.text import normalise_name

LOCAL_CHANNEL = "local"


@dataclass(frozen=True)
class LockOptions:
    """How to choose packages.

    Attributes:
        channels: names, addresses or paths, in order of preference; `LOCAL_CHANNEL` is this machine's own interpreters.
        settings: the user's settings for conda.
        cache: root of the cache.
        previous: a lock to stay with where it still fits.
        update: names of packages that are chosen afresh all the same.
        sources: pip packages that may be built from source; ``":all:"`` for any.
        engine: who chooses conda packages: ``"rattler"`` is embedded, others are programs of this machine.

    """

    channels: tuple[str, ...]
    settings: CondaSettings
    cache: Path
    previous: Lock | None = None
    update: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    engine: str = "rattler"

    @property
    def credentials(self) -> Credentials:
        """Passwords and tokens that the channels' addresses hold, and those of the user's own channels."""
        named = (name for name in (*self.settings.channels, *self.channels) if name != LOCAL_CHANNEL)
        return self.settings.resolve(named).credentials


def lock_requirements(requirements: Requirements, target: Target, options: LockOptions, progress: Progress) -> Lock:
    """Choose every package that the requirements need on the target.

    Raises:
        InputError: the requirements are for another platform or Python.
        UsageError: a channel's address is wrong, or ``options.update`` names a package that is not locked.
        EnvironmentBuildError: no choice fulfils them all, or somebody who was asked did not answer.

    """
    _refuse_other_target(requirements, target)
    _refuse_unhashed(requirements)
    _refuse_unknown_update(options)
    channels = resolve_channels(options, target, progress)
    conda = requirements.locked_conda
    specs = [f"python {target.python}.*", *requirements.conda]
    if not conda:
        conda = _solved(specs, channels, target, options, progress)
    pip = requirements.locked_pip
    if requirements.pip or requirements.projects:
        pip = (*pip, *_resolved(requirements, target, conda, channels, options, progress))
    return Lock(
        target,
        channels.urls,
        tuple(sorted(conda, key=lambda one: one.name)),
        tuple(sorted(pip, key=lambda one: one.name)),
        digest_requirements(requirements, options.channels),
    )


def resolve_channels(options: LockOptions, target: Target, progress: Progress) -> Channels:
    """The channels of some options as addresses; the local one is made now if it does not exist yet."""
    from envpack.pythons import local_channel

    names = []
    for name in options.channels:
        if name == LOCAL_CHANNEL:
            _refuse_local_for_others(target)
            found = local_channel(interpreter_for(target.python), cache=options.cache, progress=progress)
            names.append(found.folder.as_uri())
        else:
            names.append(name)
    return options.settings.resolve(names)


def _refuse_local_for_others(target: Target) -> None:
    if target.platform != host_platform():
        raise UsageError(
            f"the channel 'local' has interpreters of this machine, none for {target.platform}",
            kind="no-channel",
            hint="name a channel that has Python for it, such as --channel conda-forge",
        )


def _refuse_other_target(requirements: Requirements, target: Target) -> None:
    if requirements.platform and requirements.platform != target.platform:
        raise InputError(
            f"it is for {requirements.platform}, the target is {target.platform}",
            kind="other-platform",
            where=str(requirements.source or ""),
            hint=f"lock for that platform, or give --platform {requirements.platform}",
        )
    if requirements.locked_conda and requirements.python not in ("", target.python):
        raise InputError(
            f"it holds Python {requirements.python}, the model is for {target.python}",
            kind="other-python",
            where=str(requirements.source or ""),
            hint=f"give --python {requirements.python}",
        )


def _refuse_unhashed(requirements: Requirements) -> None:
    for package in requirements.locked_conda:
        if not (package.sha256 or package.md5):
            raise InputError(
                f"{package.name} {package.version} has no hash, so nobody can tell whether it is what was tested",
                kind="bad-requirements",
                where=str(requirements.source or ""),
                hint="write the list with conda list --explicit --sha256, or --md5",
            )


def _refuse_unknown_update(options: LockOptions) -> None:
    known = _names(options.previous) if options.previous else set()
    unknown = [name for name in options.update if normalise_name(name) not in known]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is not in the lock",
            kind="not-locked",
            hint="name a package that is; without --update everything that still fits stays as it is",
        )


def _names(lock: Lock) -> set[str]:
    return {one.name for one in lock.conda} | {one.name for one in lock.pip}


def _solved(
    specs: Sequence[str], channels: Channels, target: Target, options: LockOptions, progress: Progress
) -> tuple[CondaPackage, ...]:
    from envpack.conda import resolve_conda

    progress.begin(f"choose Python {target.python} and {len(specs) - 1} conda requirements")
    if options.engine != "rattler":
        from envpack.conda import resolve_with_program

        chosen = resolve_with_program(options.engine, specs, channels, target, settings=options.settings)
        progress.end(f"{len(chosen)} packages, chosen by {options.engine}")
        return chosen
    freed = {normalise_name(name) for name in options.update}
    prefer = [one for one in options.previous.conda if one.name not in freed] if options.previous else []
    found = resolve_conda(specs, channels, target, settings=options.settings, cache=options.cache, prefer=prefer)
    progress.end(f"{len(found)} packages")
    return found


def _resolved(
    requirements: Requirements,
    target: Target,
    conda: Sequence[CondaPackage],
    channels: Channels,
    options: LockOptions,
    progress: Progress,
) -> tuple[PipPackage, ...]:
    from envpack.lock.pip import resolve_pip
    from envpack.lock.projects import build_wheels

    wheels: tuple[Path, ...] = ()
    if requirements.projects:
        progress.begin(f"build {len(requirements.projects)} local projects")
        wheels = build_wheels(requirements.projects, target, interpreter_for(target.python).executable, options.cache)
        progress.end("built")
    progress.begin(f"choose wheels for {len(requirements.pip)} pip requirements")
    freed = {normalise_name(name) for name in options.update}
    found = resolve_pip(
        requirements,
        target,
        wheels=wheels,
        provided=_not_named(_provided(conda, channels, target, options), requirements) if len(conda) > 1 else (),
        prefer=[one for one in options.previous.pip if one.name not in freed] if options.previous else (),
        sources=options.sources,
    )
    progress.end(f"{len(found)} packages")
    return found


def _not_named(provided: Sequence[str], requirements: Requirements) -> tuple[str, ...]:
    """What conda provides stays, unless the user asks pip for it by name."""
    named = {normalise_name(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0]) for line in requirements.pip}
    return tuple(name for name in provided if name not in named)


def _provided(
    conda: Sequence[CondaPackage], channels: Channels, target: Target, options: LockOptions
) -> tuple[str, ...]:
    """The Python packages that conda brings, by pip's names for them: those that lie in a prefix of them."""
    from envpack.conda import install_conda

    options.cache.mkdir(parents=True, exist_ok=True)
    prefix = Path(tempfile.mkdtemp(prefix=".lock-", dir=options.cache))
    try:
        install_conda(
            conda, prefix, target, settings=options.settings, credentials=channels.credentials, cache=options.cache
        )
        found = (prefix / "lib" / f"python{target.python}" / "site-packages").glob("*.dist-info")
        return tuple(sorted(normalise_name(folder.name.partition("-")[0]) for folder in found))
    finally:
        shutil.rmtree(prefix, ignore_errors=True)
