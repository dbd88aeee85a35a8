"""Archives of environments that a server would unpack at the same time.

A server changes its working directory while it unpacks. Models of one backend take turns, but several Python backends
do not, and files of one archive end up in the folder of another, or the server crashes.
"""

from __future__ import annotations

from collections.abc import Iterable

from envpack.repository.model import Model
from envpack.repository.placement import environment_of

ONE_AT_A_TIME = "--model-load-thread-count=1"


def unpacking_backends(models: Iterable[Model]) -> tuple[str, ...]:
    """The backends that unpack archives for these models, sorted; more than one may not do so at the same time."""
    return tuple(sorted({model.backend for model in models if _has_archive(model)}))


def _has_archive(model: Model) -> bool:
    environment = environment_of(model)
    return environment is not None and environment.is_file()
