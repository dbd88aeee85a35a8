"""The arrows from a model's requirements to its place in the repository, one after the other."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from envpack.archive import (
    Format,
    PackageSize,
    PackerName,
    Selection,
    archive_metadata_file,
    format_costs,
    pack_archive,
    package_sizes,
    place_folder,
    read_metadata,
)
from envpack.environment import Environment, read_environment
from envpack.preflight import (
    EnvironmentFacts,
    find_mismatches,
    image_host,
    read_environment_facts,
    read_stub_requirements,
)
from envpack.project import Project
from envpack.releases import Release
from envpack.repository import (
    PYTHON_BACKEND,
    Backend,
    Model,
    backend_for,
    backends_folder,
    forget_release,
    get_string_parameter,
    in_model_folder,
    open_model,
    place_backend,
    place_stub,
    point_to_environment,
    python_of_backend,
    remove_stub,
)
from envpack.stub import STUB_NAME, ToolchainName, build_stub, target_from_prefix
from envpack.support.errors import EnvironmentBuildError, InputError, StubError, UsageError
from envpack.support.progress import NoProgress, Progress
from envpack.support.storage_errors import storage_errors
from envpack.workflow.lock import Choice, model_environment, release_for, taken_environment

ArchiveFormat = Literal["dir", "tar.gz", "tar"]
Layout = Literal["model", "backend"]
StubPolicy = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class BuildOptions:
    """How to build.

    Attributes:
        choice: Python, release, channels and whatever else decides which packages are chosen.
        archive_format: ``"dir"`` for a folder beside the model, ``"tar.gz"`` or ``"tar"`` for an archive.
        exclude: what to leave out besides what is left out anyway, by patterns as ``.gitignore`` has them.
        include: what not to leave out.
        packer: ``"conda-pack"`` lets conda-pack's library make the archive.
        strip: whether libraries and programs lose their debug information.
        served_from: the path of the model repository on the server, if it is another there; ``""`` for what the
            project says.
        stub: ``"auto"`` places one when the release's own stub has another Python, or cannot do the model's NumPy.
        toolchain: compiler for the stub.
        from_prefix: folder of an environment that is taken over instead of building one from requirements.
        layout: ``"model"`` puts the stub beside the model; ``"backend"`` into a backend for its Python, which the model
            then names. None for what the project says, or else what the model names already.
        backends: folder of those backends; None for what the project says, or else ``backends`` beside the repository.
        copy_library: folder of a server's own Python backend, whose library the backend gets instead of a link.
    """

    choice: Choice = field(default_factory=Choice)
    archive_format: ArchiveFormat = "dir"
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    packer: PackerName = "envpack"
    strip: bool = False
    served_from: str = ""
    stub: StubPolicy = "auto"
    toolchain: ToolchainName = "auto"
    from_prefix: Path | None = None
    layout: Layout | None = None
    backends: Path | None = None
    copy_library: Path | None = None


@dataclass(frozen=True)
class BuiltModel:
    """A model that has its environment.

    Attributes:
        name: the model.
        python: full version of its Python, ``""`` for an ensemble.
        numpy: version of NumPy in the environment.
        packages: how many packages the environment holds.
        environment: folder or archive beside the model.
        stub: the stub beside the model or in its backend; ``None`` if the release's own serves it.
        backend: name of the backend that serves it, ``""`` for an ensemble.
        changed: whether anything on disk was changed.
        forms: what each form of the environment costs, whichever was built.
        sizes: what each package brings, the largest first.
    """

    name: str
    python: str
    numpy: str
    packages: int
    environment: Path | None
    stub: Path | None
    backend: str
    changed: bool
    forms: tuple[Format, ...] = ()
    sizes: tuple[PackageSize, ...] = ()


def build_model(
    project: Project, name: str, options: BuildOptions | None = None, progress: Progress | None = None
) -> BuiltModel:
    """Build a model's execution environment and put it, and if need be a stub, beside the model.

    Everything is checked before anything is written, each file or folder is replaced in one step, and config.pbtxt
    comes last, so it never names an environment that is not there.

    Raises:
        InputError: the model, its configuration or its requirements are wrong.
        UsageError: no Python version is given anywhere, or an unknown one, or an unknown release, or one that does not
            take this form of environment, or options that do not go together.
        EnvironmentBuildError: the environment cannot be solved, installed or packed.
        StubError: the stub cannot be compiled.
    """
    options, progress = options or BuildOptions(), progress or NoProgress()
    model = open_model(project.repository / name)
    if model.is_ensemble:
        progress.begin(f"{model.name}: an ensemble")
        progress.end("needs no environment")
        return BuiltModel(name, "", "", 0, None, None, "", changed=False)
    release = release_for(project, options.choice)
    _refuse_folder(release, options)
    _refuse_foreign_packer(options)
    backends = _backends(project, model, options)
    with storage_errors(model.folder):
        environment = _environment(project, model, options, progress)
        said = bool(options.choice.triton or options.choice.abi or project.triton)
        repository = options.served_from or project.served_from or str(project.repository)
        server = _Server(release, said, repository, backends)
        return _place(model, environment, server, options, progress)


def _environment(project: Project, model: Model, options: BuildOptions, progress: Progress) -> Environment:
    prefix = options.from_prefix or project.settings(model.folder.name).from_prefix
    if prefix:
        environment = taken_environment(project, model, prefix, options.choice, progress)
        _refuse_without_numpy(environment, "the environment does", prefix, "install NumPy into it: pip install numpy")
        return environment
    environment, requirements = model_environment(project, model, options.choice, progress, strip=options.strip)
    source = requirements.source or model.folder
    _refuse_without_numpy(environment, "the requirements do", source, "add a line `numpy` to them")
    return environment


def _refuse_folder(release: Release, options: BuildOptions) -> None:
    if options.archive_format == "dir" and not release.takes_folders:
        raise UsageError(
            f"Triton {release.name} takes no folder as an environment",
            kind="folder-unsupported",
            hint="build an archive: --format tar.gz",
        )


def _refuse_foreign_packer(options: BuildOptions) -> None:
    if options.packer == "envpack":
        return
    if options.archive_format == "dir" or options.exclude or options.include:
        raise UsageError(
            f"{options.packer} makes archives only, of all files",
            kind="packer-limits",
            hint=f"add --format tar.gz and leave --exclude and --include out, or leave --packer {options.packer} out",
        )


def _backends(project: Project, model: Model, options: BuildOptions) -> Path | None:
    """Where the model's backend goes; None if its stub is to be beside it."""
    named = "backend" if python_of_backend(model.backend) else "model"
    layout = options.layout or project.settings(model.folder.name).layout or project.layout or named
    if layout == "backend" and options.stub == "never":
        raise UsageError(
            "a backend of its own is a stub in the first place, and --stub never asks for none",
            kind="layout-limits",
            hint="leave --stub out, or take --layout model",
        )
    return backends_folder(project, options.backends) if layout == "backend" else None


@dataclass(frozen=True)
class _Server:
    """The server that is built for, and how it will see what is built.

    Attributes:
        release: which it is.
        said: whether the user named it; if not, it is only the default.
        repository: where models are there.
        backends: folder of the backends that it gets; None if stubs are beside their models.
    """

    release: Release
    said: bool
    repository: str
    backends: Path | None


def _place(
    model: Model, environment: Environment, server: _Server, options: BuildOptions, progress: Progress
) -> BuiltModel:
    facts = read_environment_facts(environment.prefix)
    for mismatch in find_mismatches(None, facts, server.release, image_host(server.release)):
        raise EnvironmentBuildError(mismatch.reason, kind=mismatch.kind, where=str(model.folder), hint=mismatch.fix)
    binary = None
    if _wants_stub(model, environment, server, options):
        binary = _fitting_stub(facts, server.release, options.toolchain, progress)

    progress.begin(f"{model.name}: Python {environment.python}, {len(environment.packages)} packages")
    place, changed = _place_environment(model, environment, server, options, progress)
    backend = backend_for(environment.minor, server.backends) if server.backends else None
    stub = backend.stub if backend else model.folder / STUB_NAME
    changed |= _place_stub(binary, model, backend, server, options)
    previous = get_string_parameter(model.config, "EXECUTION_ENV_PATH")
    changed |= point_to_environment(model, in_model_folder(place.name), _backend_named(model, backend))
    if backend:
        changed |= remove_stub(model.folder)  # it would be preferred to the backend's
    _remove_previous(model, previous, place)
    progress.end(f"placed as {place.name}" if changed else "up to date")
    told = read_metadata(place)
    return BuiltModel(
        model.name,
        environment.python,
        _numpy_of(environment),
        len(environment.packages),
        place,
        stub if stub.exists() else None,
        backend.name if backend else PYTHON_BACKEND,
        changed,
        format_costs(told),
        package_sizes(environment, told),
    )


def _place_environment(
    model: Model, environment: Environment, server: _Server, options: BuildOptions, progress: Progress
) -> tuple[Path, bool]:
    """The environment's place beside the model, and whether that was changed."""
    place = model.folder / f"python{environment.minor}"
    selection = Selection(options.exclude, options.include)
    if options.archive_format == "dir":
        served_as = f"{server.repository.rstrip('/')}/{model.folder.name}/{place.name}"
        return place, place_folder(environment, place, selection, served_as=served_as)
    place = place.with_name(f"{place.name}.{options.archive_format}")
    if environment.placeholders:
        progress.detail(f"{environment.placeholders} files cannot name their folder, since nobody knows it yet")
    form, packer = options.archive_format, options.packer
    return place, pack_archive(environment, place, form=form, selection=selection, packer=packer)


def _place_stub(
    binary: Path | None, model: Model, backend: Backend | None, server: _Server, options: BuildOptions
) -> bool:
    """Put the stub, if there is one, where it belongs; whether that changed anything."""
    release = server.release if server.said else None
    changed = False
    if binary is not None and backend is not None:
        changed = place_backend(binary, backend, release, options.copy_library)
    elif binary is not None:
        changed = place_stub(binary, model.folder, release)
    if not server.said:
        changed |= forget_release(backend.folder if backend else model.folder)
    return changed


def _backend_named(model: Model, backend: Backend | None) -> str:
    """What config.pbtxt is to name: nothing else than it does, unless it named a backend for one Python."""
    if backend:
        return backend.name
    return PYTHON_BACKEND if python_of_backend(model.backend) else ""


def _wants_stub(model: Model, environment: Environment, server: _Server, options: BuildOptions) -> bool:
    if server.backends is not None or options.stub == "always":
        return True
    needed = _needs_stub(environment, server.release) or (model.folder / STUB_NAME).exists()
    return options.stub == "auto" and needed


def _fitting_stub(
    environment: EnvironmentFacts, release: Release, toolchain: ToolchainName, progress: Progress
) -> Path:
    """A stub for the environment that runs in the release's image, by another compiler than the first if need be."""
    target, image = target_from_prefix(environment.path), image_host(release)
    stub = build_stub(target, toolchain=toolchain, progress=progress)
    mismatches = find_mismatches(read_stub_requirements(stub.path), environment, release, image)
    if toolchain == "auto" and any(mismatch.kind == "glibc-too-old" for mismatch in mismatches):
        stub = build_stub(target, toolchain="zig", progress=progress)
        mismatches = find_mismatches(read_stub_requirements(stub.path), environment, release, image)
    for mismatch in mismatches:
        raise StubError(mismatch.reason, kind=mismatch.kind, hint=mismatch.fix)
    return stub.path


def _needs_stub(environment: Environment, release: Release) -> bool:
    """Whether the release's own stub cannot serve this environment."""
    numpy2 = int(_numpy_of(environment).partition(".")[0]) >= 2
    return environment.minor != release.python or (numpy2 and not release.numpy2)


def _numpy_of(environment: Environment) -> str:
    return next((package.version for package in environment.packages if package.name == "numpy"), "")


def _refuse_without_numpy(environment: Environment, who_does: str, where: Path, hint: str) -> None:
    if not _numpy_of(environment):
        raise InputError(
            f"{who_does} not bring NumPy, which Triton's Python backend needs in every environment",
            kind="numpy-missing",
            where=str(where),
            hint=hint,
        )


def _remove_previous(model: Model, value: str, current: Path) -> None:
    """Remove the environment that config.pbtxt named before, if it was in the model's folder and is one of ours."""
    name = value.removeprefix(in_model_folder(""))
    if not value or name == value or "/" in name or name in ("", ".", "..", current.name):
        return
    previous = model.folder / name
    if read_environment(previous) is not None:
        shutil.rmtree(previous, ignore_errors=True)
    elif archive_metadata_file(previous).is_file():
        previous.unlink(missing_ok=True)
        archive_metadata_file(previous).unlink(missing_ok=True)
