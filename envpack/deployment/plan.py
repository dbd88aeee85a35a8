"""What a deployment consists of, checked before anything is written, and the commands that serve it."""

from __future__ import annotations

import csv
import functools
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.archive.inspection import damage_of
from envpack.repository.code import called_models, sends_requests
from envpack.repository.folders import missing_version
from envpack.repository.model import Model
from envpack.repository.placement import (
    ONE_AT_A_TIME,
    PYTHON_BACKEND,
    Backend,
    backends_folder,
    find_backends,
    unpacking_backends,
)
from envpack.repository.selection import open_models
from envpack.settings.project import Project
from envpack.settings.releases import Release
from envpack.support.bounded_reading import read_json
from envpack.support.errors import InputError, ModelsError
from envpack.support.placed_files import MANIFEST as ENVIRONMENT_MANIFEST

MODELS_ON_SERVER = "/models"
SERVER_BACKENDS = "/opt/tritonserver/backends"


@dataclass(frozen=True)
class DeployedModel:
    """A model of a deployment."""

    name: str
    folder: Path
    backend: str  # "" for an ensemble
    missing_version: str  # of an ensemble without a folder of one, which servers require and git does not keep
    environment: Path | None  # in the folder, or that of another model
    model: Model  # as it was read


@dataclass(frozen=True)
class Deployment:
    """The content of a deployment.

    Attributes:
        models: sorted by name.
        backends: backend directories that models use and the server does not contain.
        release: the release that serves it.
        served_from: path of the models on the server.
        unpacking: backends that unpack archives, see `envpack.repository.placement`.
        cautions: warnings, one sentence each.
    """

    models: tuple[DeployedModel, ...]
    backends: tuple[Backend, ...]
    release: Release
    served_from: str
    unpacking: tuple[str, ...]
    cautions: tuple[str, ...]


def plan_deployment(
    project: Project, names: Sequence[str] = (), *, served_from: str = MODELS_ON_SERVER, packs: bool = False
) -> Deployment:
    """Determine the content of a deployment of a repository.

    Args:
        project: the repository and its settings.
        names: folder names of the models, all by default; the models that an ensemble runs are added.
        served_from: path of the models on the server, if no setting names one.
        packs: whether environments become archives of their models, so that they may be anywhere in the repository.

    Raises:
        InputError: the repository has no models (``repository-empty``), or what is wrong with the only model.
        ModelsError: what is wrong with each of several models: its files are invalid; its backend is missing
            (``backend-missing``); its execution environment is missing (``environment-missing``) or was changed since
            the build (``environment-changed``), or config.pbtxt refers to it by a path that differs on the server
            (``environment-elsewhere``).
    """
    found, errors = open_models(project.repository, names)
    served_from = (project.of().served_from or served_from).rstrip("/") or "/"
    backends = backends_folder(project)
    available = {backend.name: backend for backend in find_backends(backends)}
    needed: dict[str, Backend] = {}
    cautions: dict[str, list[str]] = {}
    environments: dict[str, Path | None] = {}
    damage = functools.cache(damage_of)  # of an environment that many models share, which has thousands of files
    for name, model in found.items():
        try:
            needed |= _backend_of(model, available, backends)
            environments[name] = _deployed_environment(model, None if packs else found)
            cautions[name] = _cautions(model, environments[name], damage, project.repository, served_from)
            absent = (step for step in dict.fromkeys(model.steps) if step not in found)
            cautions[name] += [f"{name} runs {step}, which is not in the repository" for step in absent]
            called = called_models(model.folder) if sends_requests(model.folder) else ()
            absent = (other for other in called if other not in found)
            cautions[name] += [
                f"{name} calls {other}, which is not part of the deployment: name it, too" for other in absent
            ]
            if model.is_foreign and (backends / model.backend).is_dir():
                what = f"{name} needs {backends / model.backend}"
                cautions[name].append(f"{what}, which is not part of the deployment and must be on the server")
        except InputError as error:
            errors[name] = error
    ModelsError.raise_any(dict(sorted(errors.items())), len(found.keys() | errors))
    models = [found[name] for name in sorted(found)]
    return Deployment(
        tuple(_deployed(model, environments[model.folder.name]) for model in models),
        tuple(needed[name] for name in sorted(needed)),
        project.release,
        served_from,
        unpacking_backends(models),
        tuple(caution for name in sorted(cautions) for caution in cautions[name]),
    )


def _deployed(model: Model, environment: Path | None) -> DeployedModel:
    missing = "" if model.backend else missing_version(model.folder, model.config)
    return DeployedModel(model.folder.name, model.folder, model.backend, missing, environment, model)


def _backend_of(model: Model, available: Mapping[str, Backend], folder: Path) -> dict[str, Backend]:
    """The backend directory that a model needs, by its name; none if servers have its backend."""
    if model.backend in available:
        return {model.backend: available[model.backend]}
    if model.backend.startswith(f"{PYTHON_BACKEND}_"):
        what = f"config.pbtxt names the backend {model.backend!r}, which is not in {folder}"
        fix = (
            f"run `envpack build --set layout=backend {model.folder.name}`, or name its folder with "
            "--set backends=DIRECTORY"
        )
        raise InputError("backend-missing", what, fix, str(model.folder))
    return {}


def _within(path: Path | None, folder: Path) -> Path | None:
    """A path that is a folder or in it, without ``..``. Links are not followed: a deployment has folders for them."""
    if path is None or not path.is_absolute():
        return None
    below = os.path.relpath(path, folder)
    return folder / below if below.split("/")[0] != ".." else None


def _deployed_environment(model: Model, models: Mapping[str, Model] | None) -> Path | None:
    """The execution environment of a model if it is in its folder, or is that of another model in that one's folder.

    Without the models it may be anywhere in the repository.
    """
    environment, repository = model.environment, model.folder.parent
    place = _within(environment, repository)
    if place is None or place == repository:
        return None
    if models is None:
        return place
    owner = models.get(place.relative_to(repository).parts[0])
    own = owner and _within(owner.environment, owner.folder)
    return place if own == place else None


def _cautions(
    model: Model, deployed: Path | None, damage: Callable[[Path], str], repository: Path, served_from: str
) -> list[str]:
    environment = model.environment
    if environment is None:
        return []
    written = model.written_environment
    is_relative = written.startswith("$$")
    if deployed and is_relative:
        if not deployed.exists():
            what = f"EXECUTION_ENV_PATH names {deployed.name}, which does not exist"
            raise InputError("environment-missing", what, f"run `envpack build {model.folder.name}`", str(model.folder))
        if what := damage(deployed):
            raise InputError("environment-changed", what, f"run `envpack build {model.folder.name}`", str(model.folder))
        return _other_prefix(model, deployed, served_from)
    if is_relative or _within(environment, repository):
        what = "will have another path on the server"
        if is_relative:
            what = "is outside its folder and is not the execution environment of a model in the deployment"
        fix = f"write its requirements, if it has none, and run `envpack build {model.folder.name}`"
        message = f"EXECUTION_ENV_PATH names {written}, which {what}"
        raise InputError("environment-elsewhere", message, fix, str(model.folder))
    return [f"{model.name} uses {written}, which is not part of the deployment and must exist on the server"]


def _other_prefix(model: Model, environment: Path, served_from: str) -> list[str]:
    """A caution if the files that contain the environment's prefix were written for another path on the server."""
    try:
        manifest = read_json(environment / ENVIRONMENT_MANIFEST)
        prefix = str(manifest["selection"]["final_prefix"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if prefix in ("", f"{served_from}/{environment.relative_to(model.folder.parent)}"):
        return []
    command = f"envpack build --set served_from={served_from} {model.folder.name}"
    return [f"files of {model.name}'s execution environment contain the path {prefix}: run `{command}`"]


def server_arguments(deployment: Deployment) -> tuple[str, ...]:
    one_at_a_time = (ONE_AT_A_TIME,) if len(deployment.unpacking) > 1 else ()
    return ("tritonserver", f"--model-repository={deployment.served_from}", *one_at_a_time)


def docker_command(deployment: Deployment, tree: Path) -> tuple[str, ...]:
    start = ("docker", "run", "--rm", "--shm-size=1g", "-p", "8000:8000", "-p", "8001:8001")
    places = {"models": deployment.served_from}
    places |= {f"backends/{backend.name}": f"{SERVER_BACKENDS}/{backend.name}" for backend in deployment.backends}
    options = [word for name, place in places.items() for word in ("--mount", _mount(f"{tree}/{name}", place))]
    # From 25.08 on servers do not run an environment's activate, which keeps the user's own packages out.
    isolation = ("-e", "PYTHONNOUSERSITE=1")
    return (*start, *isolation, *options, deployment.release.image, *server_arguments(deployment))


def _mount(source: str, target: str) -> str:
    """The value of Docker's ``--mount``: fields of CSV, in which a path may have a colon or a comma."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(("type=bind", f"source={source}", f"target={target}", "readonly"))
    return line.getvalue()
