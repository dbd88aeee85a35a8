"""How to start a server with what was deployed."""

from __future__ import annotations

from pathlib import Path

from envpack.deployment.plan import Deployment
from envpack.repository import ONE_AT_A_TIME

SERVER_BACKENDS = "/opt/tritonserver/backends"


def server_arguments(deployment: Deployment) -> tuple[str, ...]:
    """The command line of the server."""
    several = len(deployment.unpacking) > 1
    one_at_a_time = (ONE_AT_A_TIME,) if several else ()
    return ("tritonserver", f"--model-repository={deployment.served_from}", *one_at_a_time)


def docker_command(deployment: Deployment, tree: Path, image: str = "") -> tuple[str, ...]:
    """A command that serves a deployment with Docker.

    Args:
        deployment: what was deployed.
        tree: folder that holds it.
        image: an image that holds it too; by default the release's own, which the tree is mounted into.
    """
    start = ("docker", "run", "--rm", "--shm-size=1g", "-p", "8000:8000", "-p", "8001:8001")
    if image:
        return (*start, image)
    mounts = [f"{tree}/models:{deployment.served_from}:ro"]
    mounts += [f"{tree}/backends/{one.name}:{SERVER_BACKENDS}/{one.name}:ro" for one in deployment.backends]
    options = [word for mount in mounts for word in ("-v", mount)]
    # From 25.08 on servers do not run an environment's activate, which keeps the user's own packages out.
    isolation = ("-e", "PYTHONNOUSERSITE=1")
    return (*start, *isolation, *options, deployment.release.image, *server_arguments(deployment))
