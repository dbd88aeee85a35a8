"""From the models of a repository to the tasks that verify them, each in a server on one worker."""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from envpack.fleet.tasks import Task
from envpack.workflow import host_platform, models_to_verify, verify_options, verify_there

if TYPE_CHECKING:
    from envpack.settings import Project
    from envpack.workflow import VerifyOptions


def verify_tasks(project: Project, place: str, names: Sequence[str]) -> tuple[Task, ...]:
    """The tasks that verify models of a folder or an address, as the settings say."""
    options, size = verify_options(project), project.of().group
    models, unreadable = models_to_verify(place, names)
    groups = [
        (on_gpu, part)
        for on_gpu in (True, False)
        for part in _groups([name for name in models if (options.where.gpu or models[name]) == on_gpu], size)
    ]
    return tuple(
        # The first server also reports the models that cannot be read.
        _task((*part, *unreadable) if number == 0 else part, place, options, on_gpu=on_gpu)
        for number, (on_gpu, part) in enumerate(groups)
    )


def _task(names: Sequence[str], place: str, options: VerifyOptions, *, on_gpu: bool) -> Task:
    where = dataclasses.replace(options.where, gpu=on_gpu)
    return Task(
        # Without a key of its own, it could get the verdict of a caller who began before the models changed.
        key=f"envpack-verify-{uuid.uuid4().hex}",
        names=tuple(names),
        work=functools.partial(verify_there, place, tuple(names), dataclasses.replace(options, where=where)),
        makes_files=False,
        needs=_needs(where.runtime, has_image=bool(where.image or where.pull), on_gpu=on_gpu),
    )


def _needs(runtime: str, *, has_image: bool, on_gpu: bool) -> tuple[str, ...]:
    server = "docker" if runtime == "docker" or has_image else "server"
    return (f"platform {host_platform()}", server, *(("gpu",) if on_gpu else ()))


def _groups(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))
