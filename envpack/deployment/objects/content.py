"""What a model repository is in an object store, where a server reads it: every object, its content and its digest.

Digests of files are remembered as long as nothing touches these.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from envpack.archive.manifest import archive_metadata_file, is_recorded_archive, read_metadata
from envpack.archive.reading import is_archive
from envpack.archive.selection import Selection
from envpack.archive.tarball import stored_archive
from envpack.deployment.content import files_of_model
from envpack.deployment.plan import DeployedModel, Deployment
from envpack.environment.store import Environment, read_environment
from envpack.repository.config_choices import is_custom_config, python_configs
from envpack.repository.config_editor import set_backend, set_execution_environment
from envpack.repository.folders import is_model_file
from envpack.repository.model import config_text
from envpack.repository.placement import PYTHON_BACKEND, Backend, in_model_folder
from envpack.store.location import Scheme, is_altered, is_object_path
from envpack.support.bounded_reading import opened, sha256_of
from envpack.support.errors import (
    EnvironmentBuildError,
    EnvpackError,
    InputError,
    ModelsError,
    StorageError,
    storage_errors,
)
from envpack.support.folders import cache_folder
from envpack.support.memory import remember, remembered
from envpack.support.placed_files import CONFIG_NAME, RELEASE_FILE, STUB_NAME
from envpack.support.pool import Report
from envpack.support.processes import raise_if_stopped
from envpack.support.progress import SILENT, Progress
from envpack.support.redaction import public_url
from envpack.support.text import printable_line

_SUFFIXES = (".tar.gz", ".tar")
_DIGITS = 12  # of the SHA-256 in an archive's name
_ALTERED = {
    "az": ("Azure alters this name", "rename it: no backslash, and no '.' at the end"),
    "file": ("a store in a folder cannot hold this name", "rename it: no '#' before digits at the end"),
}
_KEEP = ".envpack-keep"  # object stores have no empty folders, and a server or code may require one


@dataclass(frozen=True)
class PublishedFile:
    """An object of a published repository."""

    path: str  # below the address
    file: Path | None = None  # None if the content is given
    content: bytes = b""
    sha256: str = ""  # "" if it is not known yet
    size: int = 0  # known with the digest

    @property
    def is_visible(self) -> bool:
        """Whether a server acts on it, so that it comes after what it needs: a configuration, or what is loaded."""
        _, _, path = self.path.partition("/")
        return path == CONFIG_NAME or is_custom_config(path) or is_model_file(path)


@dataclass(frozen=True)
class Publication:
    """A repository as a server reads it from an object store."""

    files: tuple[PublishedFile, ...]  # each after those that it needs
    cautions: tuple[str, ...]
    triton: str = ""
    # The packages in the environment of each model, with name, uri and sha256.
    packages: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    late: frozenset[str] = frozenset()  # models that come after all others, because they run them: ensembles
    digest: str = ""  # of all files if it is in the address, so that signatures name it
    _: KW_ONLY
    # Paths of archives of other models, by the names of the models that use them.
    borrowed: Mapping[str, str] = field(default_factory=dict)


class _Archives:
    """Where the archives of models lie."""

    def __init__(self, *, shared: bool) -> None:
        self.borrowed: dict[str, str] = {}
        self._shared = shared
        self._places: dict[str, str] = {}

    def place(self, model: str, own: str, digest: str) -> str:
        """The path of a model's archive: its own, or that of another model with the same content."""
        place = self._places.setdefault(digest, own) if self._shared else own
        if place != own:
            self.borrowed[model] = place
        return place


@contextlib.contextmanager
def published_files(
    deployment: Deployment, progress: Progress = SILENT, *, shares: bool = False, scheme: Scheme = "s3"
) -> Iterator[Publication]:
    """Determine the objects of a deployment; what the cache provides stays there during the block.

    Environments become archives in their model's folder, and a stub in a backend for one Python comes beside its model,
    because a server downloads nothing else but an archive that the configuration names.

    Args:
        deployment: the models.
        progress: receives each archive that is made.
        shares: whether several models with the same archive name that of the first one.
        scheme: the kind of the store.

    Raises:
        InputError: the only model cannot be published: its environment is not in the cache
            (``environment-not-cached``), or its folder contains what is no file (``special-file``).
        EnvironmentBuildError: its environment cannot be packed.
        ModelsError: the errors of each of several models.
        StorageError: the disk is full.
    """
    backends = {backend.name: backend for backend in deployment.backends}
    files: list[PublishedFile] = []
    errors: dict[str, EnvpackError] = {}
    cautions = list(deployment.cautions)
    packages, archives = packages_of(deployment), _Archives(shared=shares)
    with contextlib.ExitStack() as kept:
        for model in deployment.models:
            try:
                place = model.environment
                archive = kept.enter_context(_archive(model, place, progress)) if place else None
                backend = backends.get(model.backend)
                files += _storable(model, _model_files(model, archive, backend, cautions, archives), scheme)
            except (InputError, EnvironmentBuildError) as error:
                errors[model.name] = error
        ModelsError.raise_any(errors, len(deployment.models))
        late = frozenset(model.name for model in deployment.models if not model.backend)
        files.sort(key=lambda file: _turn(file, late))
        release = deployment.release.name
        yield Publication(tuple(files), tuple(cautions), release, packages, late, borrowed=archives.borrowed)


def _turn(file: PublishedFile, late: Collection[str]) -> tuple[bool, bool, str, int, str]:
    """When a file is sent: content; then model by model its configurations, and what makes a version one."""
    name, _, path = file.path.partition("/")
    step = 0 if is_custom_config(path) else 1 if path == CONFIG_NAME else 2
    return file.is_visible, name in late, name if file.is_visible else "", step if file.is_visible else 0, file.path


def packages_of(deployment: Deployment) -> dict[str, list[dict[str, str]]]:
    """The packages in the environment of each model that has one, as `Publication` describes them."""
    return {model.name: _packages(model.environment) for model in deployment.models if model.environment}


def _packages(environment: Path) -> list[dict[str, str]]:
    return [
        {
            "name": f"{package['name']} {package['version']}",
            "uri": public_url(str(package.get("url", ""))),
            "sha256": str(package.get("sha256", "")),
        }
        for package in read_metadata(environment).get("packages", [])
    ]


@contextlib.contextmanager
def _archive(model: DeployedModel, place: Path, progress: Progress) -> Iterator[Path]:
    """The archive of a model's environment: the one beside the model, or one that is made of its folder's."""
    if place.is_file() and is_archive(place):
        yield place
        return
    environment, selection = _cached(model, place)
    if environment.placeholders:
        progress.detail(
            f"{environment.placeholders} files keep a placeholder for their prefix: an archive has no folder yet"
        )
    with stored_archive(environment, selection=selection, progress=progress) as archive:
        yield archive


def _cached(model: DeployedModel, place: Path) -> tuple[Environment, Selection]:
    """The environment in the cache that a folder was placed from, and which of its files."""
    metadata: Any = read_metadata(place)
    try:
        chosen = metadata["selection"]
        selection = Selection(tuple(map(str, chosen["exclude"])), tuple(map(str, chosen["include"])))
        folder = cache_folder("environments").absolute() / Path(str(metadata["key"])).name
        environment = read_environment(folder)
        if environment is not None and environment.content == chosen["of"]:
            return environment, selection
    except (KeyError, TypeError):
        pass
    what = "an object store needs an archive, and the cache does not have the environment that this folder comes from"
    fix = f"run `envpack build --format tar.gz {model.name}`, or `envpack build {model.name}` and publish again"
    raise InputError("environment-not-cached", what, fix, str(place))


def _model_files(
    model: DeployedModel, archive: Path | None, backend: Backend | None, cautions: list[str], archives: _Archives
) -> Iterator[PublishedFile]:
    folder = model.folder
    texts = {CONFIG_NAME: config_text(folder)}
    texts = {str(file.relative_to(folder)): config.text for file, config in python_configs(folder).items()} | texts
    left_out = {folder / path for path in texts}
    if archive is not None and model.environment is not None:
        digest = str(read_metadata(archive)["sha256"]) if archive != model.environment else _recorded(archive)
        own = f"{model.name}/{_archive_name(model.environment, digest)}"
        place = archives.place(model.name, own, digest)
        value = in_model_folder(place.removeprefix(f"{model.name}/") if place == own else f"../{place}")
        texts = {path: set_execution_environment(text, value, folder / path) for path, text in texts.items()}
        left_out |= {model.environment, archive_metadata_file(model.environment)}
        if place == own:
            yield PublishedFile(own, archive, sha256=digest)
    if backend is not None:
        texts = {path: set_backend(text, PYTHON_BACKEND, folder / path) for path, text in texts.items()}
        left_out |= {folder / STUB_NAME, folder / RELEASE_FILE}
        yield PublishedFile(f"{model.name}/{STUB_NAME}", backend.stub)
        if (backend.folder / RELEASE_FILE).is_file():
            yield PublishedFile(f"{model.name}/{RELEASE_FILE}", backend.folder / RELEASE_FILE)
    for entry in files_of_model(model, left_out, cautions):
        is_file = entry.kind == "file"
        path = f"{model.name}/{entry.path}"
        yield PublishedFile(path, entry.source) if is_file else PublishedFile(f"{path}/{_KEEP}")
    if model.missing_version:
        yield PublishedFile(f"{model.name}/{model.missing_version}/{_KEEP}")
    yield from (PublishedFile(f"{model.name}/{path}", content=text.encode()) for path, text in texts.items() if text)


def _storable(model: DeployedModel, files: Iterator[PublishedFile], scheme: Scheme) -> Iterator[PublishedFile]:
    """Refuse names that an object store does not take, before anything is sent."""
    for file in files:
        what = ""
        if not is_object_path(file.path):
            what = "an object store cannot hold this name"
            fix = "rename it: no control characters, UTF-8, 255 characters for each part, 800 bytes in all"
        elif is_altered(file.path, scheme):
            what, fix = _ALTERED[scheme]
        if what:
            name = printable_line(file.path).replace("\t", "\\t")
            raise InputError("unpublishable-name", f"{what}: {name}", fix, str(model.folder))
        yield file


def _recorded(archive: Path) -> str:
    """The SHA-256 of an archive beside a model; it is read unless the file beside it describes exactly this file."""
    recorded = str(read_metadata(archive).get("sha256", ""))
    return recorded if recorded and is_recorded_archive(archive) else sha256_of(archive)


def _archive_name(place: Path, sha256: str) -> str:
    """A name that changes with the content, so that a configuration never names another archive than its own."""
    suffix = next((suffix for suffix in _SUFFIXES if place.name.endswith(suffix)), ".tar.gz")
    return f"{place.name.removesuffix(suffix)}-{sha256[:_DIGITS]}{suffix}"


PIECE = 4 << 20  # bytes
_SETTLED = 2 * 10**9  # nanoseconds after which another change of a file has other time stamps


def pin(publication: Publication, address: str) -> Publication:
    """A publication whose files cannot change any more without an error, with its digest."""
    files = tuple(describe_files(publication.files, address))
    return dataclasses.replace(publication, files=files, digest=content_digest({one.path: one.sha256 for one in files}))


def content_digest(digests: Mapping[str, str]) -> str:
    """The digest of files by theirs: the SHA-256 of what ``sha256sum`` prints for them, sorted by their paths."""
    text = "".join(f"{sha256}  {path}\n" for path, sha256 in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def describe_files(files: Sequence[PublishedFile], address: str) -> list[PublishedFile]:
    """Files with their digests and sizes; digests are remembered for an address. All can be read."""
    place = hashlib.sha256(address.encode()).hexdigest()[:16]
    memory = cache_folder("publications") / f"{place}.json"
    known, found = remembered(memory), {}
    described = []
    for file in files:
        raise_if_stopped()
        if file.file is None:
            sha256 = hashlib.sha256(file.content).hexdigest()
            described.append(dataclasses.replace(file, sha256=sha256, size=len(file.content)))
            continue
        with storage_errors(file.file), opened(file.file) as content:
            status = os.fstat(content.fileno())
        sha256 = file.sha256
        if not sha256:
            name, stamp = str(file.file.absolute()), stamp_of(status)
            entry = known.get(name, [""])
            sha256 = str(entry[-1]) if entry[:-1] == stamp and entry[-1] else _sha256(file.file, stamp)
            found[name] = [*stamp, sha256 if has_settled(status, time.time_ns()) else ""]
        described.append(dataclasses.replace(file, sha256=sha256, size=status.st_size))
    if found and found != known:
        remember(memory, found)
    return described


def stamp_of(status: os.stat_result) -> list[int]:
    """What differs after any change of a file, also after one that sets its modification time back."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino]


def has_settled(status: os.stat_result, now: int) -> bool:
    """Whether a file did not change shortly before a time in nanoseconds, or since, so that its stamp is its own."""
    return now - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED


def _sha256(file: Path, stamp: list[int]) -> str:
    digest = hashlib.sha256()
    for _ in pieces(file, digest):
        pass
    if stamp_of(file.stat()) != stamp:
        raise changed(file)
    return digest.hexdigest()


def pieces(file: Path, digest: Any, report: Report = lambda _: None) -> Iterator[bytes]:
    """The content of a file, which also goes into a digest."""
    with opened(file) as content:  # what was a file may be a pipe now
        os.posix_fadvise(content.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while piece := content.read(PIECE):
            digest.update(piece)
            yield piece
            report(len(piece))


def changed(file: Path) -> StorageError:
    """The error for a file that a program changed while it was read."""
    what = "this file changed while it was published"
    again = "publish again when nothing writes to the repository"
    fix = f"{again}; an archive that fails again is damaged: remove it and build"
    return StorageError("file-unusable", what, fix, str(file))
