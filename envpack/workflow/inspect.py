"""What files show of models, an execution environment or a stub, and whether they fit a release. Nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from envpack.archive.comparison import Inspection
from envpack.archive.inspection import inspect_environment as compare_files
from envpack.archive.reading import is_archive, other_format
from envpack.archive.sbom import bill_of_materials
from envpack.environment.inventory import INVENTORY
from envpack.inspection.facts import image_host, read_environment_facts, read_stub_requirements
from envpack.inspection.preflight import find_mismatches
from envpack.inspection.repository import RepositoryInspection, inspect_repository, is_repository
from envpack.repository.folders import looks_like_model, no_models, no_such_model
from envpack.settings.project import open_project
from envpack.settings.releases import find_release
from envpack.settings.table import Settings
from envpack.stub.inspection import StubFacts, inspect_stub as read_facts
from envpack.support.bounded_reading import refuse_pointer
from envpack.support.errors import Finding, InputError, StubError, UsageError, misuse, storage_errors
from envpack.support.folders import whole_path
from envpack.support.placed_files import MANIFEST
from envpack.support.progress import Progress
from envpack.support.replacement import check_output, write_output
from envpack.support.temp_dirs import temp_dir
from envpack.support.text import counted

if TYPE_CHECKING:
    from envpack.deployment.signing import Trust


@dataclass(frozen=True)
class InspectedModels:
    """Models of a repository; ``ok`` says whether nothing is wrong."""

    found: RepositoryInspection
    ok: bool


@dataclass(frozen=True)
class InspectedEnvironment:
    """An execution environment, and what does not fit a release; ``ok`` says whether nothing is wrong."""

    found: Inspection
    mismatches: Sequence[Finding]
    ok: bool


@dataclass(frozen=True)
class InspectedStub:
    """A stub, and what does not fit an execution environment or a release."""

    path: Path
    facts: StubFacts
    mismatches: Sequence[Finding]


def inspect_path(
    path: str | None,
    repository: Path,
    said: Settings,
    progress: Progress,
    *,
    trust: Trust | None,
    environment: Path | None,
    strict: bool,
    sbom: Path | None,
    limit: int,
) -> InspectedModels | InspectedEnvironment | InspectedStub:
    """Inspect an image by its address, a file or folder, a model by its name, or the repository."""
    if path is not None and path.startswith("oci://"):
        if environment or sbom:
            raise misuse("inspect", "--environment applies to stubs and --sbom to environments; this is an image")
        return inspect_image(path, said, trust, progress, strict=strict)
    place = _existing(path, repository)
    if trust is not None:
        compare_with_signed(place, trust, progress)
    match identify(place):
        case "models":
            if environment or sbom:
                raise misuse("inspect", "--environment applies to stubs and --sbom to environments; these are models")
            return inspect_models(place, said, strict=strict)
        case "environment":
            if environment:
                raise misuse("inspect", "--environment applies to stubs; this is an environment")
            return inspect_environment(place, said.triton or "", strict=strict, sbom=sbom, limit=limit)
    if sbom or strict:
        raise misuse("inspect", "--sbom and --strict apply to environments; this is neither a folder nor an archive")
    return inspect_stub(place, environment, said.triton or "")


def _existing(path: str | None, repository: Path) -> Path:
    if path is None:
        return open_project(repository).repository
    for candidate in (repository / path, Path(path)):  # as other commands find a model
        if candidate.exists():
            return candidate
    if "://" in path:
        fix = f"copy the models first: envpack fetch {path} DIRECTORY; or verify them there: envpack verify {path}"
        raise UsageError("usage", f"{path} is no address of an image, oci://registry/name:tag", fix)
    open_project(repository)  # raises an error if there is none
    what = f"{path!r} does not exist, and is no model of the repository {repository.absolute()}"
    raise (
        UsageError("usage", what, no_such_model(repository / path).hint) if "/" not in path else misuse("inspect", what)
    )


# One of these is in what remains of an environment that lacks a file which servers need.
_IN_ENVIRONMENTS = ("bin/activate", MANIFEST, INVENTORY, "conda-meta", "pyvenv.cfg", "bin/python*", "lib/python*")


def identify(path: Path) -> Literal["models", "environment", "stub"]:
    """What a file or folder is by its content: a stub unless it is anything else."""
    if path.is_dir():
        if looks_like_model(path) or is_repository(path):
            return "models"
        if any(next(path.glob(pattern), None) for pattern in _IN_ENVIRONMENTS):
            return "environment"
        what = "this folder has neither models nor an execution environment"
        raise InputError("repository-empty", what, no_models(path, "envpack inspect").hint, str(path))
    if is_archive(path):
        return "environment"
    refuse_pointer(path)
    if path.is_file() and (form := other_format(path)):
        what = f"it is compressed with {form}, and servers only read tar and tar.gz"
        fix = "build a supported archive: `envpack build --format tar.gz`; or unpack it and name the folder"
        raise InputError("environment-unreadable", what, fix, str(path))
    return "stub"


def compare_with_signed(path: Path, trust: Trust, progress: Progress) -> None:
    """Compare downloaded models with what was signed; raises what `check_signed` does."""
    from envpack.deployment.objects.fetch import check_signed

    progress.begin(f"compare {path} with what was signed")
    progress.end(counted(check_signed(path, trust), "file"))


def inspect_models(path: Path, said: Settings, *, strict: bool) -> InspectedModels:
    path = whole_path(path)
    names = [path.name] if looks_like_model(path) else []
    project = open_project(path.parent if names else path, said)
    found = inspect_repository(project, project.release, names)
    return InspectedModels(found, found.ok and not (strict and found.findings))


def inspect_image(
    url: str, said: Settings, trust: Trust | None, progress: Progress, *, strict: bool
) -> InspectedModels:
    from envpack.deployment.images.address import parse_image_address  # most inspections need neither
    from envpack.deployment.images.fetch import pull_image  # most inspections need neither

    address = parse_image_address(url)
    with temp_dir("image") as folder:
        (folder / "image").mkdir()
        progress.begin(f"fetch oci://{address}")
        pulled = pull_image(address, folder / "image", progress, trust=trust)
        progress.end("signed" if trust else "")
        return inspect_models(pulled.models, said.saying(backends=pulled.backends), strict=strict)


def inspect_environment(
    path: Path, triton: str, *, strict: bool, sbom: Path | None, limit: int
) -> InspectedEnvironment:
    """Inspect a folder or an archive; write its bill of materials if nothing is wrong."""
    if sbom:
        check_output(sbom)
    path = whole_path(path)
    found = compare_files(path, limit=limit << 30)
    release = find_release(triton) if triton else None
    mismatches = find_mismatches(None, read_environment_facts(path), release, image_host(release)) if release else ()
    inspected = InspectedEnvironment(found, mismatches, found.is_good(strict=strict) and not mismatches)
    if sbom and inspected.ok:
        version = str(found.manifest.get("content") or found.sha256)
        python = str(found.manifest.get("python", ""))
        text = bill_of_materials(found.packages, name=found.path.name, version=version, python=python)
        with storage_errors(sbom):
            write_output(sbom, text.encode())
    return inspected


def inspect_stub(stub: Path, environment: Path | None, triton: str) -> InspectedStub:
    """Inspect a stub, alone or with an execution environment and for a release."""
    release = find_release(triton) if triton else None
    try:
        facts = read_facts(stub)
    except StubError as error:  # it may be anything
        error.hint = "name a stub that `envpack stub` built, an environment or its archive, or a folder with models"
        raise
    needs = read_stub_requirements(stub)
    facts_of_environment = read_environment_facts(whole_path(environment)) if environment else None
    host = image_host(release) if release else None
    return InspectedStub(stub, facts, find_mismatches(needs, facts_of_environment, release, host))
