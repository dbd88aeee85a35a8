"""A Triton server on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from envpack.doctor.observation import Observation
from envpack.project import Project
from envpack.server import find_server
from envpack.support.errors import ServerError


def server(project: Project) -> Iterator[Observation]:  # noqa: ARG001 - all probes are called alike
    """What `envpack verify --runtime process` boots."""
    try:
        found = find_server()
    except ServerError as error:
        yield Observation("tritonserver", "warn", f"{error.message}; a container can take its place", error.hint)
        return
    release = f"Triton {found.release}" if found.release else "of an unknown release"
    yield Observation("tritonserver", "ok", f"{release}, {found.executable}")
