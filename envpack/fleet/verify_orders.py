"""From the models of a repository to the tasks that verify them, each in a server on one worker."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from envpack.fleet.tasks import Task, VerifyOrder
from envpack.repository import CONFIG_NAME, Model, find_folder, find_models, no_models, open_model, parse_config
from envpack.requirements import host_platform
from envpack.store import Location, Objects
from envpack.support.errors import InputError
from envpack.verification import VerifyOptions

_CONFIG_BYTES = 16 << 20


def verify_tasks(
    repository: Path | Location, names: Sequence[str], options: VerifyOptions, *, group: int = 1
) -> tuple[Task, ...]:
    """The tasks that verify models of a repository.

    Args:
        repository: a folder that the workers have at the same path, or a published repository.
        names: of the models; all by default.
        options: how to verify.
        group: how many models share a server. Models whose instances need a GPU share none with others.

    Raises:
        InputError: a model is invalid, or there is none.
        StorageError: the object store cannot be used.
    """
    models = {model.name: model for model in _models(repository, names)}
    for_gpu = {name for name in models if options.where.gpu or _needs_gpu(name, models.get, repository)}
    tasks = []
    for on_gpu in (True, False):
        for part in _groups([name for name in models if (name in for_gpu) == on_gpu], group):
            where = dataclasses.replace(options.where, gpu=on_gpu)
            # Without a key of its own, it could get the verdict of a caller who began before the models changed.
            tasks.append(
                Task(
                    key=f"envpack-verify-{uuid.uuid4().hex}",
                    names=tuple(part),
                    order=VerifyOrder(
                        repository=str(repository),
                        models=tuple(models[name].folder.name for name in part),
                        options=dataclasses.replace(options, where=where),
                    ),
                    needs=_needs(where.runtime, has_image=bool(where.image or where.pull), on_gpu=on_gpu),
                )
            )
    return tuple(tasks)


def _needs(runtime: str, *, has_image: bool, on_gpu: bool) -> tuple[str, ...]:
    server = "docker" if runtime == "docker" or has_image else "server"
    return (f"platform {host_platform()}", server, *(("gpu",) if on_gpu else ()))


def _groups(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _models(repository: Path | Location, names: Sequence[str]) -> Sequence[Model]:
    if isinstance(repository, Path):
        found: Sequence[Model] = [open_model(repository / name) for name in names] or list(find_models(repository))
    else:
        objects = Objects(repository)
        wanted = names or sorted(_published(objects))
        found = [_published_model(objects, name) for name in wanted]
    if not found:
        raise no_models(Path(str(repository)))
    return found


def _published(objects: Objects) -> set[str]:
    """Folders with a configuration in a published repository."""
    paths = (info.path.split("/") for info in objects.list())
    return {parts[0] for parts in paths if parts[1:] == [CONFIG_NAME]}


def _published_model(objects: Objects, name: str) -> Model:
    where = f"{name}/{CONFIG_NAME}"
    found = objects.read(where, _CONFIG_BYTES)
    if found is None:
        raise InputError("no such model", kind="model-missing", where=where, hint="publish it, or name another model")
    config = parse_config(found[0].decode("utf-8", "replace"), where)
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
        folder = find_folder(repository, name)
        return open_model(folder) if folder else None
    try:
        return _published_model(Objects(repository), name)
    except InputError:
        return None
