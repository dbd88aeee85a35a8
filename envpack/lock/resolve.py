"""Requirements → lock: the local channel, then the conda packages, then the wheels."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envpack.conda.choice import interpreter_for, interpreter_here, reason_to_fetch
from envpack.conda.interpreter_package import fingerprint
from envpack.conda.interpreters import Interpreter
from envpack.conda.settings import Channels, CondaSettings, Credentials
from envpack.lock.lockfile import Lock, digest_requirements, lock_key, wheel_not_here
from envpack.lock.pip import applying, build_wheels, check_lines, resolve_pip
from envpack.lock.uv import requirement_name
from envpack.requirements.locked_packages import check_locked
from envpack.requirements.model import CondaPackage, PipPackage, Requirements
from envpack.requirements.target import Target
from envpack.settings.table import PythonPreference
from envpack.support.entry_locks import ingredients_in_use, mark_used
from envpack.support.errors import EnvironmentBuildError, InputError, UsageError, storage_errors
from envpack.support.folders import cache_folder
from envpack.support.memory import remember, remembered
from envpack.support.platforms import host_platform
from envpack.support.progress import SILENT, Progress
from envpack.support.temp_dirs import partial_folder
from envpack.support.text import counted, normalise_name
from envpack.support.uv import index_settings

LOCAL_CHANNEL = "local"
_LOCK = "lock"  # key of its text in a memory
_RECORDS = (".dist-info", ".egg-info")  # the latter are those of setup.py, as in packages of PyTorch's channel
_BUILDS = 2  # of projects, if their sources change meanwhile


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    """How to resolve requirements."""

    # Names, addresses or paths, in order of preference; `LOCAL_CHANNEL` has this machine's interpreters.
    channels: tuple[str, ...]
    settings: CondaSettings  # the user's conda settings
    cache: Path  # root of the cache
    previous: Lock | None = None  # a lock whose packages are kept where they still fit
    update: tuple[str, ...] = ()  # names of packages that are not kept
    sources: tuple[str, ...] = ()  # pip packages that may be built from source; ``":all:"`` for any
    # Where interpreters come from, see `envpack.conda.choice.interpreter_for`.
    python_preference: PythonPreference = "system"
    allowed: str = ""  # versions of Python that an error may propose, ``""`` for all

    @property
    def credentials(self) -> Credentials:
        """Passwords and tokens in the addresses of these channels and of those in the user's settings."""
        named = (name for name in (*self.settings.channels, *self.channels) if name != LOCAL_CHANNEL)
        return self.settings.resolve(named).credentials

    def interpreter(self, target: Target, progress: Progress) -> Interpreter:
        """The interpreter for a target; uv fetches one if none of this machine fits."""
        return interpreter_for(
            target.python,
            preference=self.python_preference,
            glibc=target.glibc,
            allowed=self.allowed,
            progress=progress,
        )

    def remembered(self, requirements: Requirements, target: Target) -> Lock | None:
        """The lock to which these requirements resolved first on this machine; ``None`` if there is none."""
        local = LOCAL_CHANNEL in self.channels
        if local and reason_to_fetch(target.python, self.python_preference, target.glibc, self.allowed):
            return None
        return _remembered(lock_memory(requirements, target, self))

    def resolve_once(self, requirements: Requirements, target: Target, progress: Progress) -> Lock:
        """The lock to which these requirements resolved first on this machine; resolve them if there is none."""
        check_requirements(requirements, target, self.sources)  # before a Python is fetched
        if remembered := self.remembered(requirements, target):
            return remembered
        options = self
        if LOCAL_CHANNEL in self.channels:
            found = self.interpreter(target, progress)
            if self.python_preference == "managed" and not found.managed:  # none could be fetched, which takes long
                options = replace(self, python_preference="only-system")
        digest, file = digest_requirements(requirements, self.channels), lock_memory(requirements, target, self)
        with storage_errors(file), ingredients_in_use(self.cache):
            remembered = _remembered(file)  # of an interpreter that is used because none could be fetched
            if remembered:
                return remembered
            lock = lock_requirements(requirements, target, options, progress)
            if lock.requirements_digest == digest:  # no project has changed since the file was named
                remember(file, {_LOCK: lock.text})
        return lock


def lock_memory(requirements: Requirements, target: Target, options: LockOptions) -> Path:
    here = index_settings() if requirements.pip or requirements.projects else []
    if LOCAL_CHANNEL in options.channels:
        preference = options.python_preference
        here.insert(0, fingerprint(interpreter_here(target.python, preference=preference, glibc=target.glibc)))
    name = lock_key(requirements, target, options.channels, options.sources, here=here)
    return cache_folder("solutions", options.cache) / f"{name}.lock"


def _remembered(file: Path) -> Lock | None:
    with contextlib.suppress(InputError, KeyError):  # one of another version; resolving again replaces it
        lock = Lock.parse(str(remembered(file)[_LOCK]), file)
        if wheel_not_here(lock.pip):  # of a project, which is built again
            return None
        mark_used(file)
        return lock
    return None


def lock_requirements(requirements: Requirements, target: Target, options: LockOptions, progress: Progress) -> Lock:
    check_requirements(requirements, target, options.sources)
    _check_update(options)
    channels = resolve_channels(options, target, progress)
    resolver = _Resolver(target, channels, options, progress)
    conda = requirements.locked_conda or resolver.conda(requirements)
    wheels, digest = resolver.build_projects(requirements)
    pip = requirements.locked_pip
    if requirements.pip or requirements.projects:
        pip = (*pip, *resolver.pip(requirements, conda, wheels))
    return Lock(
        target,
        channels.urls,
        tuple(sorted(conda, key=lambda package: package.name)),
        tuple(sorted(pip, key=lambda package: package.name)),
        digest,
    )


DOES_NOT_FIT = ("wheel-missing", "unresolvable")
"""Kinds of errors for requirements that no set of packages meets."""


def can_try(requirements: Requirements, options: LockOptions) -> bool:
    """Whether `resolves` can tell: files may be locked for one Python, or need more to be made than a resolution."""
    locked = requirements.locked_conda or requirements.locked_pip or requirements.projects
    return not locked and not (requirements.conda and LOCAL_CHANNEL in options.channels)


def resolves(requirements: Requirements, target: Target, options: LockOptions) -> bool:
    """Whether requirements resolve for a target; raises an `EnvpackError` if that is unknown, as without a network."""
    try:
        if LOCAL_CHANNEL not in options.channels:
            channels = resolve_channels(options, target, SILENT)
            _Resolver(target, channels, options, SILENT).conda(requirements)
        resolve_pip(requirements, target, sources=options.sources)
    except EnvironmentBuildError as error:
        if error.kind not in DOES_NOT_FIT:
            raise
        return False
    return True


def check_requirements(requirements: Requirements, target: Target, sources: Sequence[str]) -> None:
    """Refuse what no resolution would make right."""
    check_locked(requirements)
    _check_target(requirements, target)
    check_lines(requirements, target)
    _check_sources(requirements, target, sources)


def check_channels(channels: Sequence[str], target: Target) -> None:
    """Refuse the local channel for another platform than this machine's."""
    if LOCAL_CHANNEL in channels and target.platform != host_platform():
        what = f"the channel 'local' has interpreters of this machine, none for {target.platform}"
        fix = "name a channel that has Python for it, such as --channel conda-forge"
        raise UsageError("no-channel", what, fix)


def resolve_channels(options: LockOptions, target: Target, progress: Progress) -> Channels:
    """The channels of the options as addresses; the local channel is made first if it does not exist."""
    from envpack.conda.channels import local_channel

    check_channels(options.channels, target)
    names = []
    for name in options.channels:
        if name == LOCAL_CHANNEL:
            package = local_channel(options.interpreter(target, progress), cache=options.cache, progress=progress)
            names.append(package.channel.as_uri())
        else:
            names.append(name)
    return options.settings.resolve(names)


def _check_target(requirements: Requirements, target: Target) -> None:
    if requirements.platform and requirements.platform != target.platform:
        what = f"it is for {requirements.platform}, the target is {target.platform}"
        fix = f"lock for that platform, or use --platform {requirements.platform}"
        raise InputError("other-platform", what, fix, str(requirements.source or ""))
    if requirements.locked_conda and requirements.python not in ("", target.python):
        what = f"it has Python {requirements.python}, the model is for {target.python}"
        raise InputError("other-python", what, f"use --python {requirements.python}", str(requirements.source or ""))


def _check_sources(requirements: Requirements, target: Target, sources: Sequence[str]) -> None:
    allowed = {normalise_name(name) for name in sources}
    for package in requirements.locked_pip:
        if package.is_wheel or ":all:" in sources or package.name in allowed:
            continue
        wanted = f"{package.name} {package.version} for Python {target.python} on {target.platform}"
        what = f"the lock has no wheel of {wanted}, only its source"
        fix = f"build it from source: --allow-source {package.name}; or lock a version that has a wheel"
        raise EnvironmentBuildError(
            "wheel-missing", what, fix, requirements.places.get(package.name, str(requirements.source or ""))
        )


def _check_update(options: LockOptions) -> None:
    locked = options.previous.names if options.previous else ()
    unknown = [name for name in options.update if normalise_name(name) not in locked]
    if unknown:
        fix = "name a package that is; without --update, packages that still fit are kept"
        if options.previous is None:
            fix = "leave out --update: there is no lock for this Python and platform yet"
        raise UsageError("not-locked", f"{unknown[0]!r} is not in the lock", fix)


@dataclass(frozen=True)
class _Resolver:
    target: Target
    channels: Channels
    options: LockOptions
    progress: Progress

    def conda(self, requirements: Requirements) -> tuple[CondaPackage, ...]:
        from envpack.conda.resolve import resolve_conda

        python = f"python {self.target.python}.*"
        specs = [python, *requirements.conda]
        self.progress.begin(f"resolve Python {self.target.python} and {counted(len(specs) - 1, 'conda requirement')}")
        previous = self.options.previous
        packages = resolve_conda(
            specs,
            self.channels,
            self.target,
            settings=self.options.settings,
            cache=self.options.cache,
            prefer=[package for package in previous.conda if self._keeps(package)] if previous else [],
            places=requirements.places,
        )
        self.progress.end(counted(len(packages), "package"))
        return packages

    def _keeps(self, package: CondaPackage) -> bool:
        """Whether a package of the previous lock may stay; one of a channel that is not named any more may not."""
        named = any(package.url.startswith(f"{channel}/") for channel in self.channels.urls)
        return named and package.name not in self._updated()

    def pip(
        self, requirements: Requirements, conda: Sequence[CondaPackage], wheels: Sequence[Path]
    ) -> tuple[PipPackage, ...]:
        self.progress.begin(f"resolve {counted(len(requirements.pip), 'pip requirement')}")
        previous = self.options.previous
        packages = resolve_pip(
            requirements,
            self.target,
            wheels=wheels,
            provided=(*self._provided_by(conda, requirements), *(wheel.name for wheel in requirements.locked_pip)),
            prefer=[package for package in previous.pip if package.name not in self._updated()] if previous else [],
            sources=self.options.sources,
        )
        self.progress.end(counted(len(packages), "package"))
        return packages

    def _updated(self) -> set[str]:
        return {normalise_name(name) for name in self.options.update}

    def build_projects(self, requirements: Requirements) -> tuple[tuple[Path, ...], str]:
        """The wheels of local projects, and the digest of the requirements with the sources that they were built from.

        A build may write into the sources, once or each time.
        """
        digest, wheels = digest_requirements(requirements, self.options.channels), tuple[Path, ...]()
        if not requirements.projects:
            return wheels, digest
        preference = self.options.python_preference
        python = interpreter_for(self.target.python, preference=preference, progress=self.progress)
        for _ in range(_BUILDS):
            self.progress.begin(f"build {counted(len(requirements.projects), 'local project')}")
            wheels = build_wheels(requirements, self.target, python.executable, self.options.cache)
            self.progress.end(counted(len(wheels), "wheel"))
            before, digest = digest, digest_requirements(requirements, self.options.channels)
            if digest == before:
                break
        return wheels, digest

    def _provided_by(self, conda: Sequence[CondaPackage], requirements: Requirements) -> list[str]:
        """Names, as pip knows them, of conda's Python packages, without those that a pip requirement replaces."""
        from envpack.conda.engine import install_conda

        if len(conda) <= 1:  # Python alone
            return []
        replaced = {requirement_name(line) for line in applying(requirements.pip, self.target)}
        cache = self.options.cache
        cache.mkdir(parents=True, exist_ok=True)
        with partial_folder(cache) as prefix:
            install_conda(
                conda,
                prefix,
                self.target,
                settings=self.options.settings,
                credentials=self.channels.credentials,
                cache=cache,
            )
            records = (prefix / "lib" / f"python{self.target.python}" / "site-packages").glob("*.*-info")
            names = {record.stem.partition("-")[0] for record in records if record.suffix in _RECORDS}
            return sorted(set(map(normalise_name, names)) - replaced)
