"""Changes of files that concern a model: its code, its configuration, or what it requires."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from envpack.project import Project
from envpack.repository import CONFIG_NAME, Model, environment_of
from envpack.requirements import find_requirements

_STEP = 30  # milliseconds without a change after which those so far are one; editors write files in several steps
_MOST = 400  # milliseconds
_IGNORED = ("__pycache__",)


@dataclass(frozen=True)
class Change:
    """What changed of a model.

    Attributes:
        model: its name.
        requires_build: whether its environment has to be built again, because it requires something else.

    """

    model: str
    requires_build: bool


Snapshot = Mapping[Path, tuple[int, int]]


def snapshot(project: Project, models: Mapping[str, Model]) -> Snapshot:
    """The files that concern models, each with its time of change and its size."""
    found = {}
    for model in models.values():
        files = {path for path in model.folder.rglob("*") if _concerns(model, path)}
        for file in files | _requirement_files(project, model):
            with contextlib.suppress(OSError):
                status = file.stat()
                found[file] = (status.st_mtime_ns, status.st_size)
    return found


def watch(
    project: Project, models: Mapping[str, Model], stop: threading.Event, pause: float, since: Snapshot
) -> Iterator[tuple[Change, ...]]:
    """Wait for changes; yields them, or nothing after each pause without one, until `stop` is set.

    Args:
        project: settings, which may name files of requirements.
        models: to watch, by name.
        stop: ends the iteration.
        pause: seconds.
        since: the files before they were first loaded; what has changed since then comes first.

    """
    import watchfiles

    requirements = {name: _requirement_files(project, model) for name, model in models.items()}
    folders = {model.folder for model in models.values()}
    folders |= {file.parent for files in requirements.values() for file in files if file.parent.is_dir()}
    for found in watchfiles.watch(
        *folders,
        watch_filter=lambda _, path: not path.endswith("~"),
        debounce=_MOST,
        step=_STEP,
        rust_timeout=int(pause * 1000),
        yield_on_timeout=True,
        stop_event=stop,
        raise_interrupt=True,
    ):
        paths = {Path(path) for _, path in found}
        if since:  # the watch may have begun after these changes
            now, before, since = snapshot(project, models), since, {}
            paths |= {file for file in {*now, *before} if now.get(file) != before.get(file)}
        changes = (_change(model, paths, requirements[name]) for name, model in models.items())
        yield tuple(change for change in changes if change is not None)


def _requirement_files(project: Project, model: Model) -> frozenset[Path]:
    file = project.settings(model.folder.name).requirements or find_requirements(model.folder)
    return frozenset(path.absolute() for path in (file, project.file) if path is not None)


def _change(model: Model, paths: set[Path], requirements: frozenset[Path]) -> Change | None:
    if paths & requirements:
        return Change(model.name, requires_build=True)
    if any(_concerns(model, path) for path in paths):
        return Change(model.name, requires_build=False)
    return None


def _concerns(model: Model, path: Path) -> bool:
    """Whether a server would load the model again: its configuration, or a file of a version."""
    try:
        parts = path.relative_to(model.folder).parts
    except ValueError:
        return False
    environment = environment_of(model)
    if not parts or any(part in _IGNORED for part in parts) or (environment and path.is_relative_to(environment)):
        return False
    return parts == (CONFIG_NAME,) or parts[0][:1] in "123456789"
