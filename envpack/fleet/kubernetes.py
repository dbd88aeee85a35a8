"""Builds as Kubernetes Jobs: the same tasks without dask; what they make goes to the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import envpack
from envpack.fleet.orders import build_task
from envpack.fleet.tasks import Task
from envpack.settings import Project
from envpack.store import SharedStore
from envpack.support.errors import InputError, UsageError
from envpack.workflow import Recipe, build_sources, recipe_text

DEFAULT_IMAGE = f"triton-envpack:{envpack.__version__}"
DEFAULT_SECRET = "envpack-store"  # noqa: S105 - the name of a Secret
_NOBODY = 65534
_RETRIES = 2
_MOST_BYTES = 1_000_000  # of a ConfigMap, whose limit is 1 MiB
_SENT, _FILE, _WORK = "/recipe", "recipe.json", "/scratch"  # in the Job's container
_ARCHITECTURES = {"linux-64": "amd64", "linux-aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class BuildJobOptions:
    """Options of the Jobs.

    Attributes:
        image: an image with envpack, the extra ``store``, and what the builds need: a compiler, interpreters.
        secret: name of the Secret whose entries become variables, such as ``AWS_ACCESS_KEY_ID``; it may be absent.
        memory_bytes: memory limit of each Job in bytes.
    """

    image: str = DEFAULT_IMAGE
    secret: str = DEFAULT_SECRET
    memory_bytes: int = 4 << 30


def build_jobs(
    project: Project, names: Sequence[str], store: SharedStore | None, jobs: BuildJobOptions
) -> tuple[dict[str, Any], ...]:
    """A ConfigMap with the files of a model and a Job, for each different environment that these models need."""
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
            documents += [_config_map(task, text), _job(task, source.target.platform, jobs)]
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
        "metadata": {"name": _name(task), "labels": _labels()},
        "data": {_FILE: text},
    }


def _job(task: Task, platform: str, jobs: BuildJobOptions) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [
        {"name": "recipe", "configMap": {"name": _name(task)}},
        {"name": "work", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "nodeSelector": {"kubernetes.io/arch": _ARCHITECTURES[platform]},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "fsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(task, jobs)],
        "volumes": volumes,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": _name(task), "labels": _labels()},
        "spec": {"backoffLimit": _RETRIES, "template": {"metadata": {"labels": _labels()}, "spec": pod}},
    }


def _container(task: Task, jobs: BuildJobOptions) -> dict[str, Any]:
    store = ["--store", task.store, "--set", "push=true"]
    return {
        "name": "build",
        "image": jobs.image,
        "command": ["envpack", "build", "--recipe", f"{_SENT}/{_FILE}", *store],
        "env": [
            {"name": "HOME", "value": _WORK},
            {"name": "ENVPACK_CACHE_DIR", "value": f"{_WORK}/cache"},
        ],
        "envFrom": [{"secretRef": {"name": jobs.secret, "optional": True}}],
        "resources": {"limits": {"memory": f"{-(-jobs.memory_bytes >> 20)}Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "recipe", "mountPath": _SENT, "readOnly": True},
            {"name": "work", "mountPath": _WORK},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }


def _labels() -> dict[str, str]:
    return {"app.kubernetes.io/name": "envpack-build", "app.kubernetes.io/managed-by": "envpack"}


def _not_portable(prefix: Path) -> InputError:
    what = "no other machine can take over an environment from a folder of this one"
    return InputError("not-portable", what, "build it on this machine with --store URL --set push=true", str(prefix))
