"""From options, project and model to one request: what to build or resolve, with every question answered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.archive import Selection
from envpack.conda import CondaSettings, read_conda_settings, spec_channels
from envpack.lock import LOCAL_CHANNEL, LOCK_NAME, LockOptions, read_lock
from envpack.pythons import check_minor
from envpack.releases import Release
from envpack.repository import (
    CONFIG_NAME,
    Model,
    backends_folder,
    configured_start,
    misspelt_backend,
    python_of_backend,
)
from envpack.requirements import Requirements, Target, find_requirements, host_platform, read_requirements
from envpack.settings import ArchiveFormat, PackerName, Project, Settings, Start, StubPolicy, ToolchainName
from envpack.stub import STUB_NAME
from envpack.support.cache_locations import cache_root
from envpack.support.errors import UsageError
from envpack.support.transfer import LinkMode
from envpack.workflow.placed import Placed, placed_environment
from envpack.workflow.python_choice import ChosenPython, PythonChooser, usable_pythons


@dataclass(frozen=True, kw_only=True)
class LockRequest:
    """All that the lock of one model depends on.

    Attributes:
        model: the model.
        requirements: what it requires.
        target: what the packages are resolved for.
        options: channels and settings.
        python: the Python version of ``target``, and why it is that one.
    """

    model: Model
    requirements: Requirements
    target: Target
    options: LockOptions
    python: ChosenPython

    @property
    def lock_file(self) -> Path:
        """Where the model's lockfile is, or would be."""
        return self.model.folder / LOCK_NAME


@dataclass(frozen=True, kw_only=True)
class PrefixRequest:
    """An existing environment to take over for one model.

    Attributes:
        prefix: its folder.
        python: the minor version that it must have, ``""`` for any.
        platform: ``"linux-64"`` or ``"linux-aarch64"``, ``""`` for this machine's.
    """

    prefix: Path
    python: str
    platform: str


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """A build of one model with every question answered.

    Attributes:
        model: the model.
        source: what the environment is made from.
        release: Triton release to build for.
        release_named: whether the user named that release; otherwise it is only the default.
        served_from: path of the model repository on the server.
        archive_format: form of the environment beside the model.
        selection: which files it leaves out.
        packer: what makes an archive.
        strip: remove debug information from libraries and programs.
        stub: when to place a stub.
        toolchain: compiler for the stub.
        link_mode: how files of the cache are placed.
        backends: folder of the backends; None if the stub goes beside the model.
        copy_library: folder of a Python backend whose library is copied.
        start: how the model's instances are to start, ``""`` for what its configuration says.
        force: move aside what envpack did not make.
    """

    model: Model
    source: LockRequest | PrefixRequest
    release: Release
    release_named: bool
    served_from: str
    archive_format: ArchiveFormat
    selection: Selection
    packer: PackerName
    strip: bool
    stub: StubPolicy
    toolchain: ToolchainName
    link_mode: LinkMode
    backends: Path | None
    copy_library: Path | None
    start: Start | Literal[""]
    force: bool

    @property
    def starts_warm(self) -> bool:
        """Whether the model's configuration names the warm start after the build."""
        return (self.start or configured_start(self.model.config)) == "warm"


def build_request(project: Project, model: Model) -> BuildRequest:
    """Resolve project and model into one request. Nothing is written."""
    said = project.of(model.folder.name)
    if error := misspelt_backend(model.backend, model.folder / CONFIG_NAME, backends_folder(project)):
        raise error
    release, placed = project.release, placed_environment(model)
    request = BuildRequest(
        model=model,
        source=_source(project, model, release, placed),
        release=release,
        release_named=bool(said.triton or said.abi),
        served_from=said.served_from or str(project.repository),
        archive_format=said.format or placed.archive_format or "dir",
        selection=Selection(said.exclude, said.include),
        packer=said.packer,
        strip=said.strip,
        stub=said.stub,
        toolchain=said.toolchain,
        link_mode=said.link_mode,
        backends=_backends(project, model),
        copy_library=said.copy_library,
        start=said.start,
        force=said.force,
    )
    _refuse_folder(request)
    _refuse_foreign_packer(request)
    _refuse_missing_stub(request)
    return request


def lock_request(project: Project, model: Model) -> LockRequest:
    """Resolve what the lock of one model depends on. Nothing is resolved or written."""
    return _lock_request(project, model, project.release, placed_environment(model))


def _source(project: Project, model: Model, release: Release, placed: Placed) -> LockRequest | PrefixRequest:
    said = project.of(model.folder.name)
    if said.from_prefix is None:
        return _lock_request(project, model, release, placed)
    if said.python:
        check_minor(said.python, where="" if project.said.python else str(project.file))
    return PrefixRequest(prefix=said.from_prefix, python=said.python, platform=said.platform)


def _lock_request(project: Project, model: Model, release: Release, placed: Placed) -> LockRequest:
    said, conda = project.of(model.folder.name), read_conda_settings()
    chooser = _python_chooser(project, model, conda, release, placed)
    requirements = _requirements(said, model, release, chooser)
    platform = said.platform or requirements.platform or host_platform()
    python = chooser.choose(requirements)
    return LockRequest(
        model=model,
        requirements=requirements,
        target=Target(platform, python.minor, release.glibc, release.cuda),
        options=LockOptions(
            channels=_channels(said, requirements, conda),
            settings=conda,
            cache=cache_root().absolute(),
            sources=said.allow_source,
            python_preference=said.python_preference,
        ),
        python=python,
    )


def _requirements(said: Settings, model: Model, release: Release, chooser: PythonChooser) -> Requirements:
    """What the model requires; without any requirements NumPy, since no model runs without it."""
    file = said.requirements or find_requirements(model.folder)
    if not file:
        return Requirements(pip=("numpy",))
    return read_requirements(
        file,
        platform=said.platform or host_platform(),
        python=lambda requirements: chooser.choose(requirements).minor,
        glibc=release.glibc,
    )


def _channels(said: Settings, requirements: Requirements, settings: CondaSettings) -> tuple[str, ...]:
    """The first channels that somebody names, and those that match specs name beside them, as conda does."""
    named = said.channels or requirements.channels or settings.channels
    return tuple(dict.fromkeys((*named, *spec_channels(requirements.conda)))) or (LOCAL_CHANNEL,)


def _python_chooser(
    project: Project, model: Model, settings: CondaSettings, release: Release, placed: Placed
) -> PythonChooser:
    """What decides the Python version: explicit settings first, then what the model has."""
    name = model.folder.name
    said = project.of(name)

    def had() -> tuple[tuple[str, str], ...]:
        lock = read_lock(model.folder / LOCK_NAME)
        locked = ((lock.target.python, LOCK_NAME),) if lock else ()
        return (*locked, *(((placed.python, "the environment that the model has"),) if placed.python else ()))

    def here(requirements: Requirements) -> set[str]:
        """Interpreters of this machine, if Python comes from one."""
        local = LOCAL_CHANNEL in _channels(said, requirements, settings)
        return usable_pythons(said.python_preference, release.glibc) if local else set()

    source, where = ("--python", "") if project.said.python else (project.file.name, str(project.file))
    return PythonChooser(said=((said.python, source, where),), had=had, release=release, here=here)


def _backends(project: Project, model: Model) -> Path | None:
    """Where the model's backend goes; None if its stub goes beside it."""
    said = project.of(model.folder.name)
    layout = said.layout or ("backend" if python_of_backend(model.backend) else "model")
    if layout == "backend" and said.stub == "never":
        raise UsageError(
            "a backend for one Python contains a stub, and --stub never excludes it",
            kind="layout-limits",
            hint="remove --stub never, or use --set layout=model",
        )
    return backends_folder(project) if layout == "backend" else None


def _refuse_folder(request: BuildRequest) -> None:
    if request.archive_format == "dir" and not request.release.takes_folders:
        raise UsageError(
            f"Triton {request.release.name} does not accept a folder as an execution environment",
            kind="folder-unsupported",
            hint="build an archive: --format tar.gz",
        )


def _refuse_missing_stub(request: BuildRequest) -> None:
    has_stub = request.backends is not None or (request.model.folder / STUB_NAME).exists()
    if request.start == "warm" and request.stub == "never" and not has_stub:
        raise UsageError(
            "only envpack's stub starts models warm, and --stub never excludes it",
            kind="start-limits",
            hint="remove --stub never, or use --start cold",
        )


def _refuse_foreign_packer(request: BuildRequest) -> None:
    if request.packer == "envpack":
        return
    if request.archive_format == "dir" or request.selection != Selection():
        raise UsageError(
            f"{request.packer} makes archives only, of all files",
            kind="packer-limits",
            hint=f"add --format tar.gz and leave out exclude and include, or leave out packer={request.packer}",
        )
