"""Verification as the settings say: of a repository, of a published one by its address, or of models on a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.deployment.images.address import parse_image_address
from envpack.deployment.objects.fetch import no_published_models
from envpack.deployment.signing import Trust, read_trust  # noqa: F401 - for commands
from envpack.repository.config import parse_config
from envpack.repository.folders import find_folder, is_model_file, no_models
from envpack.repository.model import Model
from envpack.repository.placement import backends_folder
from envpack.repository.selection import open_models
from envpack.server.choice import ServerSpec, served_from_container  # noqa: F401 - for Jobs
from envpack.settings.project import Project
from envpack.store.location import Location, parse_location
from envpack.store.objects import Objects
from envpack.support.errors import EnvpackError, InputError, ModelsError, misuse
from envpack.support.placed_files import CONFIG_NAME
from envpack.support.progress import Progress
from envpack.verification.checks.server import check_repository
from envpack.verification.published import verify_image, verify_published
from envpack.verification.report import write_report  # noqa: F401 - for commands
from envpack.verification.run import verify
from envpack.verification.verdict import Check, ModelVerdict, Verdict

if TYPE_CHECKING:
    from envpack.store.shared import SharedStore
    from envpack.workflow.recipe import Made

_CONFIG_BYTES = 16 << 20


def server_spec(project: Project, address: str = "") -> ServerSpec:
    """How the settings let a server run; one that loads published models is a process."""
    said, settled = project.said, project.of().saying(**({"runtime": "process"} if address else {}))
    if address and (said.runtime == "docker" or said.image):
        raise misuse("verify", "a server loads published models as a process of this machine, not in a container")
    runtime = settled.runtime
    named = f"--runtime {runtime}" if address or said.runtime else f"runtime {runtime} in {project.file}"
    settings = {"image": "--image", "pull": "pull", "memory": "memory", "shm_size": "shm_size"}
    of_containers = [shown for name, shown in settings.items() if getattr(said, name)]
    if runtime == "docker" and said.server:
        raise misuse("verify", f"--server is for a process of this machine, and {named} starts a container")
    if of_containers and (runtime == "process" or said.server):
        process = "--server" if said.server else named
        are = "is" if len(of_containers) == 1 else "are"
        raise misuse("verify", f"{' and '.join(of_containers)} {are} for containers, and {process} starts none")
    spec = ServerSpec(settled, backends=backends_folder(project), samples=project.repository.absolute())
    spec.all_variables()  # what is wrong with them is an error before any work
    return spec


def verify_models(
    project: Project, address: str, names: Sequence[str], progress: Progress, *, trust: Trust | None = None
) -> Verdict:
    """Verify models of a repository, or of what is published at an address, as the settings say."""
    spec = server_spec(project, address)
    if not address:
        return verify(project.repository, names, spec=spec, progress=progress, project=project)
    return _verify_published(address, names, spec, progress, trust)


def check_published(address: str) -> None:
    """Refuse an address that is none, or that other machines cannot read."""
    if address.startswith("oci://"):
        parse_image_address(address)
    elif parse_location(address).folder:
        raise misuse("verify", "a folder of this machine is no address for others")


def _verify_published(
    address: str, names: Sequence[str], spec: ServerSpec, progress: Progress, trust: Trust | None
) -> Verdict:
    if address.startswith("oci://"):
        return verify_image(parse_image_address(address), names, spec=spec, trust=trust, progress=progress)
    return verify_published(parse_location(address), names, spec=spec, trust=trust, progress=progress)


def verify_there(
    place: str,
    names: Sequence[str],
    spec: ServerSpec,
    trust: Trust | None = None,
    *,
    progress: Progress,
    store: SharedStore | None,
) -> Made:
    """Verify models of a repository that a caller named and this machine must have too, or of a published one."""
    from envpack.workflow.recipe import Made

    del store  # every task of a worker gets it
    if "://" in place:
        return Made(fresh=True, verdict=_verify_published(place, names, spec, progress, trust))
    repository = Path(place)
    absent = [name for name in names if not (repository / name).is_dir()]
    if absent:
        fix = "publish the repository and verify its address, or keep it on a file system that all workers mount"
        raise InputError("repository-not-shared", f"the worker's machine has no model {absent[0]} there", fix, place)
    return Made(fresh=True, verdict=verify(repository, names, spec=spec, progress=progress))


def models_to_verify(place: str, names: Sequence[str]) -> tuple[dict[str, bool], tuple[str, ...]]:
    """The models of a folder or an address: whether each needs a GPU, and the names of those that cannot be read."""
    repository = parse_location(place) if "://" in place else Path(place)
    models, unreadable = _models(repository, names)
    return {name: _needs_gpu(name, models.get, repository) for name in models}, unreadable


def _models(repository: Path | Location, names: Sequence[str]) -> tuple[dict[str, Model], tuple[str, ...]]:
    if isinstance(repository, Path):
        found, errors = open_models(repository, names)
    else:
        found, errors = _published_models(Objects(repository), names)
    wanted = [name for name in found if not names or name in names]
    if not wanted:
        ModelsError.raise_any(errors, len(errors))
        raise no_models(repository) if isinstance(repository, Path) else no_published_models(repository)
    return {name: found[name] for name in wanted}, tuple(name for name in errors if not names or name in names)


def _published_models(objects: Objects, names: Sequence[str]) -> tuple[dict[str, Model], dict[str, EnvpackError]]:
    found: dict[str, Model] = {}
    errors: dict[str, EnvpackError] = {}
    for name in names or sorted(_published(objects)):
        try:
            found[name] = _published_model(objects, name)
        except InputError as error:
            if error.kind == "model-missing":
                raise
            errors[name] = error
    return found, errors


def _published(objects: Objects) -> set[str]:
    """Folders of models in a published repository: with a configuration, or with the file of a backend in a version."""
    paths = (info.path.partition("/") for info in objects.list())
    return {name for name, _, path in paths if path == CONFIG_NAME or is_model_file(path)}


def _published_model(objects: Objects, name: str) -> Model:
    where = f"{name}/{CONFIG_NAME}"
    found = objects.read(where, _CONFIG_BYTES)
    if found is None and name not in _published(objects):
        raise InputError("model-missing", "no such model", "publish it, or name another model", where)
    config = parse_config(found[0].decode("utf-8", "replace") if found else "", where)
    return Model(config.name or name, Path(name), config, is_ensemble=config.platform == "ensemble", backend="")


def _needs_gpu(name: str, known: Callable[[str], Model | None], repository: Path | Location) -> bool:
    """Whether a model, or one that it runs as an ensemble, has instances on GPUs."""
    seen: set[str] = set()
    pending = [name]
    while pending:
        step = pending.pop()
        model = None if step in seen else known(step) or _other(step, repository)
        seen.add(step)
        if model is not None and model.needs_gpu:
            return True
        pending += model.steps if model else ()
    return False


def _other(name: str, repository: Path | Location) -> Model | None:
    """A model that was not named, but is run by one that was; None if there is none, which verify reports."""
    if isinstance(repository, Path):
        return open_models(repository, [name])[0].get(name) if find_folder(repository, name) else None
    try:
        return _published_model(Objects(repository), name)
    except InputError:
        return None


_WORST_FIRST = ("failed", "unchecked", "warning", "ok", "skipped")


def combine_verdicts(parts: Sequence[Verdict], *, folder: Path | None, seconds: float) -> Verdict:
    """Combine the verdicts on parts of a repository, yes only if all are. A check of servers has its worst result."""
    models: dict[str, ModelVerdict] = {}
    for model in (model for part in parts for model in part.models):
        if model.name not in models or models[model.name].ok:
            models[model.name] = model
    checks = [
        *([check_repository(folder)] if folder else []),
        *_worst(check for part in parts for check in part.checks),
    ]
    return Verdict(
        ok=all(part.ok for part in parts) and all(check.ok for check in checks),
        repository=parts[0].repository,
        release=_joined(part.release for part in parts),
        server=_joined(part.server for part in parts),
        runtime=_joined(part.runtime for part in parts),
        image=_joined(part.image for part in parts),
        models=tuple(models.values()),
        checks=tuple(checks),
        leftovers=tuple(leftover for part in parts for leftover in part.leftovers),
        started=min(part.started for part in parts),
        seconds=seconds,
        verdict_seconds=max(part.verdict_seconds for part in parts),
    )


def _worst(checks: Iterable[Check]) -> list[Check]:
    found: dict[str, Check] = {}
    for made in checks:
        before = found.get(made.id)
        if before is None or _WORST_FIRST.index(made.status) < _WORST_FIRST.index(before.status):
            found[made.id] = made
    return list(found.values())


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, texts)))
