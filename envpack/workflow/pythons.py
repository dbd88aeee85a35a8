"""The Python of a model that no one names, where the release's own cannot be had."""

from __future__ import annotations

from envpack.conda import NO_INTERPRETER, SUPPORTED
from envpack.lock import LOCAL_CHANNEL
from envpack.requirements import allows_minor
from envpack.settings import Project, Settings
from envpack.support.errors import EnvironmentBuildError
from envpack.support.progress import Progress
from envpack.workflow.python_choice import ChosenPython, usable_pythons
from envpack.workflow.recipe import Recipe, TakenOver


def with_another_python(
    project: Project,
    source: Recipe | TakenOver,
    python: ChosenPython | None,
    error: EnvironmentBuildError,
    progress: Progress,
) -> Project | None:
    """The project with the Python of this machine that is nearest to the release's, for a build that has none.

    Returns:
        None if the user or the model names a Python, if the failure has another cause, or if this machine has none.
    """
    if isinstance(source, TakenOver) or python is None or python.named or error.kind not in NO_INTERPRETER:
        return None
    if LOCAL_CHANNEL not in source.channels:
        return None
    wanted = SUPPORTED.index(source.target.python)
    usable = {
        minor
        for minor in usable_pythons(source.python_preference, source.target.glibc)
        if minor in SUPPORTED and allows_minor(source.requirements.pythons, minor)
    }
    if not usable:
        return None
    nearest = min(usable, key=lambda minor: (abs(SUPPORTED.index(minor) - wanted), -SUPPORTED.index(minor)))
    progress.detail(f"{source.name}: {error.message}")
    progress.detail(f"{source.name}: neither it nor an option names a Python, so it gets Python {nearest}")
    return project.saying(Settings(python=nearest))
