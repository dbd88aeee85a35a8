"""From the models of a repository to the tasks that verify them, each in a server on one worker."""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from envpack.fleet.tasks import Task
from envpack.fleet.work import verify_models
from envpack.repository import CONFIG_NAME, Model, find_folder, is_model_file, no_models, open_models, parse_config
from envpack.requirements import host_platform
from envpack.store import Location, Objects
from envpack.support.errors import EnvpackError, InputError, ModelsError
from envpack.verification import VerifyOptions

_CONFIG_BYTES = 16 << 20


def verify_tasks(
    repository: Path | Location, names: Sequence[str], options: VerifyOptions, *, group: int = 1
) -> tuple[Task, ...]:
    """The tasks that verify models of a repository."""
    models, unreadable = _models(repository, names)
    for_gpu = {name for name in models if options.where.gpu or _needs_gpu(name, models.get, repository)}
    groups = [
        (on_gpu, part)
        for on_gpu in (True, False)
        for part in _groups([name for name in models if (name in for_gpu) == on_gpu], group)
    ]
    return tuple(
        # The first server also reports the models that cannot be read.
        _task((*part, *unreadable) if number == 0 else part, repository, options, on_gpu=on_gpu)
        for number, (on_gpu, part) in enumerate(groups)
    )


def _task(names: Sequence[str], repository: Path | Location, options: VerifyOptions, *, on_gpu: bool) -> Task:
    where = dataclasses.replace(options.where, gpu=on_gpu)
    return Task(
        # Without a key of its own, it could get the verdict of a caller who began before the models changed.
        key=f"envpack-verify-{uuid.uuid4().hex}",
        names=tuple(names),
        work=functools.partial(verify_models, str(repository), tuple(names), dataclasses.replace(options, where=where)),
        makes_files=False,
        needs=_needs(where.runtime, has_image=bool(where.image or where.pull), on_gpu=on_gpu),
    )


def _needs(runtime: str, *, has_image: bool, on_gpu: bool) -> tuple[str, ...]:
    server = "docker" if runtime == "docker" or has_image else "server"
    return (f"platform {host_platform()}", server, *(("gpu",) if on_gpu else ()))


def _groups(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _models(repository: Path | Location, names: Sequence[str]) -> tuple[dict[str, Model], tuple[str, ...]]:
    """The models to verify by the names of their folders, and the names of those that cannot be read."""
    if isinstance(repository, Path):
        found, errors = open_models(repository, names)
    else:
        found, errors = _published_models(Objects(repository), names)
    wanted = [name for name in found if not names or name in names]
    if not wanted:
        ModelsError.raise_any(errors, len(errors))
    if not wanted:
        raise no_models(Path(str(repository)))
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
        raise InputError("no such model", kind="model-missing", where=where, hint="publish it, or name another model")
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
