"""Builds as Kubernetes Jobs: the same tasks without dask; what they make goes to the store."""

from __future__ import annotations

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
