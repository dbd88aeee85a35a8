"""Builds as Kubernetes Jobs: each is the same task as without dask, and puts what it makes into the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import envpack
from envpack.fleet import pods
from envpack.fleet.orders import build_task
from envpack.fleet.tasks import Task
from envpack.settings.project import Project
from envpack.settings.pythons import is_fetchable
from envpack.store.shared import SharedStore
from envpack.support.errors import InputError, UsageError
from envpack.workflow.recipe import Recipe, recipe_text
from envpack.workflow.recipes import build_sources

_NAME = "envpack-build"
_IMAGE = f"triton-envpack:{envpack.__version__}"
CLIENT_SIDE_BYTES = 262_144  # kubectl apply puts a document into an annotation, whose limit this is
_RETRIES = 2
_IMAGE_PYTHON = "3.12"  # the only interpreter of the default image
_SENT, _FILE, _WORK = "/recipe", "recipe.json", "/scratch"  # in the Job's container
_HERE = "build it on this machine with --store URL --set push=true"
_ARCHITECTURES = {"linux-64": "amd64", "linux-aarch64": "arm64"}


def build_jobs(
    project: Project,  # the repository and its settings
    names: Sequence[str],  # folder names of the models
    store: SharedStore | None,  # what receives the environments
    *,
    image: str = "",  # an image with envpack, the extra store, and what the builds need: a compiler, interpreters
    secret: str = "",  # name of the Secret whose entries become variables, such as AWS_ACCESS_KEY_ID; it may be absent
    overlay: pods.Overlay | None = None,  # further fields of the documents
) -> tuple[dict[str, Any], ...]:
    """A ConfigMap with the files of a model and a Job, for each different environment that these models need."""
    if store is None or store.location.folder:
        what = "Jobs on other machines put what they make into a store, which cannot be a folder of this machine"
        raise UsageError("fleet-needs-store", what, "add --store s3://bucket/prefix, or gs:// or az://")
    pods.check_names(build_image=image, secret=secret)
    seen: set[str] = set()
    documents = []
    for source in build_sources(project, names):
        if not isinstance(source, Recipe):
            what = "no other machine can take over an environment from a folder of this one"
            raise InputError("not-portable", what, _HERE, str(source.prefix))
        if not image:
            _check_python(source)
        text = recipe_text(source)
        task = build_task(source, store)
        if task.key not in seen:
            seen.add(task.key)
            container = _container(task, image or _IMAGE, secret, project.of().memory or pods.MEMORY)
            added = overlay or pods.Overlay()
            documents += [_config_map(task, text, added), _job(task, text, source.target.platform, container, added)]
    return tuple(documents)


def _name(task: Task) -> str:
    """The same for the same work."""
    return f"envpack-build-{task.key.removeprefix('envpack-environment-')[:12]}-{task.key[-8:]}"


def _check_python(recipe: Recipe) -> None:
    """Refuse a build whose Python neither the default image has nor uv can fetch there."""
    python = recipe.target.python
    if not recipe.resolves_interpreter or python == _IMAGE_PYTHON:
        return
    if recipe.python_preference == "only-system" or not is_fetchable(python):
        what = f"a Job would find no Python {python}: the image has {_IMAGE_PYTHON}, and uv would fetch none"
        fix = "name a conda channel with --channel, or with --build-image an image that has it"
        raise InputError("not-portable", what, fix, recipe.name)


def _config_map(task: Task, text: str, overlay: pods.Overlay) -> dict[str, Any]:
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _name(task), "labels": pods.labels_of(_NAME)},
        "data": {_FILE: text},
    }
    size = len(json.dumps(document, ensure_ascii=False).encode()) + 5 * sum(map(text.count, "<>&"))  # as kubectl
    if size > CLIENT_SIDE_BYTES:
        what = f"the requirements and the lock of {task.names[0]} take {size} bytes, more than {CLIENT_SIDE_BYTES}"
        raise InputError("not-portable", what, _HERE, task.names[0])
    return overlay.on(document)


def _job(task: Task, text: str, platform: str, container: dict[str, Any], overlay: pods.Overlay) -> dict[str, Any]:
    content = {
        "containers": [container],
        "volumes": [
            {"name": "recipe", "configMap": {"name": _name(task)}},
            {"name": "work", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    selected = {"nodeSelector": {"kubernetes.io/arch": _ARCHITECTURES[platform]}}
    pod = pods.unprivileged_pod(content, selected)
    return pods.named_job(_name(task), _NAME, text, pod, overlay, retries=_RETRIES)


def _container(task: Task, image: str, secret: str, memory: int) -> dict[str, Any]:
    store = ["--store", task.store, "--set", "push=true"]
    return {
        "name": "build",
        "image": image,
        "command": ["envpack", "build", "--recipe", f"{_SENT}/{_FILE}", *pods.as_words(store)],
        "env": [
            {"name": "HOME", "value": _WORK},
            {"name": "ENVPACK_CACHE_DIR", "value": f"{_WORK}/cache"},
        ],
        "envFrom": pods.from_secret(secret),
        "resources": pods.resources(memory),
        "securityContext": pods.least_rights(),
        "volumeMounts": [
            {"name": "recipe", "mountPath": _SENT, "readOnly": True},
            {"name": "work", "mountPath": _WORK},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }
