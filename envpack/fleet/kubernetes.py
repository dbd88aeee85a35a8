"""Builds as Kubernetes Jobs: the same tasks without dask; what they make goes to the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import envpack
from envpack.fleet.orders import build_task
from envpack.fleet.tasks import BuildOrder, Task
from envpack.lock import LOCK_NAME
from envpack.repository import CONFIG_NAME, DEFAULT_CONFIG, Model, open_model
from envpack.settings import FILE_NAME, Project, Settings
from envpack.store import SharedStore
from envpack.support.errors import InputError, UsageError
from envpack.support.redaction import redact
from envpack.workflow import BuildRequest, LockRequest, build_request

DEFAULT_IMAGE = f"triton-envpack:{envpack.__version__}"
DEFAULT_SECRET = "envpack-store"  # noqa: S105 - the name of a Secret
_NOBODY = 65534
_RETRIES = 2
_MOST_BYTES = 1_000_000  # of a ConfigMap, whose limit is 1 MiB
_SENT, _WORK = "/project", "/scratch"  # of the Job's container
_COPY = f"{_WORK}/repository"
_ARCHITECTURES = {"linux-64": "amd64", "linux-aarch64": "arm64"}
# A ConfigMap is read-only and has no folders. The code of a model does not travel, but a model needs some.
_SCRIPT = f'mkdir -p "{_COPY}/$1/1" && cp -rL {_SENT}/. {_COPY} && : > "{_COPY}/$1/1/model.py" && shift && exec "$@"'


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
        raise UsageError(
            "Jobs on other machines put what they make into a store, which cannot be a folder of this machine",
            kind="fleet-needs-store",
            hint="add --store s3://bucket/prefix, or gs:// or az://",
        )
    seen: set[str] = set()
    documents = []
    for name in names:
        model = open_model(project.repository / name)
        if model.is_ensemble:
            continue
        request = build_request(project, model)
        task = build_task(request, project.of().abi, store)
        if task is None:
            raise _not_portable(model, "it depends on files of this machine")
        if task.key not in seen:
            seen.add(task.key)
            texts = _files(project, request)
            documents += [_config_map(task, texts), _job(task, texts, jobs)]
    return tuple(documents)


def jobs_yaml(documents: Sequence[dict[str, Any]]) -> str:
    """The documents as YAML, for ``kubectl apply -f -``."""
    import yaml

    text: str = yaml.safe_dump_all(documents, sort_keys=False)
    return text


def _name(task: Task) -> str:
    """At most 63 characters, and the same for the same work."""
    return f"envpack-build-{task.key.removeprefix('envpack-environment-')[:12]}-{task.key[-8:]}"


def _files(project: Project, request: BuildRequest) -> dict[str, str]:
    """The files that travel, by path in the repository."""
    model, source = request.model, request.source
    name, texts = model.folder.name, dict[str, str]()
    for file in source.requirements.files if isinstance(source, LockRequest) else ():
        if not file.is_relative_to(project.repository):
            raise _not_portable(model, f"{file} is outside of the model repository")
        path, text = str(file.relative_to(project.repository)), file.read_text(encoding="utf-8")
        if redact(text) != text:
            raise _not_portable(model, f"{path} contains an address with a password or a token")
        texts[path] = text
    if texts:  # the first is the one that includes the others
        texts[FILE_NAME] = f"[models.{json.dumps(name)}]\nrequirements = {json.dumps(next(iter(texts)))}\n"
    if (model.folder / LOCK_NAME).is_file():
        texts[f"{name}/{LOCK_NAME}"] = (model.folder / LOCK_NAME).read_text(encoding="utf-8")
    texts[f"{name}/{CONFIG_NAME}"] = DEFAULT_CONFIG
    if sum(map(len, texts.values())) > _MOST_BYTES:
        raise _not_portable(model, f"its requirements and lock have more than {_MOST_BYTES} bytes")
    return texts


def _config_map(task: Task, texts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _name(task), "labels": _labels()},
        "data": dict(zip(_keys(texts), texts.values(), strict=True)),
    }


def _job(task: Task, texts: Mapping[str, str], jobs: BuildJobOptions) -> dict[str, Any]:
    items = [{"key": key, "path": path} for key, path in zip(_keys(texts), texts, strict=True)]
    volumes: list[dict[str, Any]] = [
        {"name": "project", "configMap": {"name": _name(task), "items": items}},
        {"name": "work", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    architecture = _ARCHITECTURES[cast("BuildOrder", task.order).target.platform]
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "nodeSelector": {"kubernetes.io/arch": architecture},
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
    name = task.names[0]
    return {
        "name": "build",
        "image": jobs.image,
        "command": ["sh", "-c", _SCRIPT, "envpack-build", name, *_words(task), "--", name],
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
            {"name": "project", "mountPath": _SENT, "readOnly": True},
            {"name": "work", "mountPath": _WORK},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }


def _words(task: Task) -> list[str]:
    """The command without the model: every setting that decides the result, so that the keys are the same."""
    order = cast("BuildOrder", task.order)
    said = Settings(
        python=order.target.minor,
        triton=order.release,
        abi=order.abi,
        platform=order.target.platform,
        channels=order.channels,
        python_preference=order.python_preference,
        allow_source=order.sources,
        strip=order.strip,
        stub=order.stub,
        toolchain=order.toolchain,
        store=task.store,
        push=True,
    )
    return ["envpack", "build", "--repository", _COPY, *said.words("build")]


def _keys(texts: Mapping[str, str]) -> list[str]:
    """Names of the entries of a ConfigMap, which must not contain slashes."""
    return [f"file-{number}" for number in range(len(texts))]


def _labels() -> dict[str, str]:
    return {"app.kubernetes.io/name": "envpack-build", "app.kubernetes.io/managed-by": "envpack"}


def _not_portable(model: Model, reason: str) -> InputError:
    return InputError(
        f"a Job cannot build {model.folder.name}: {reason}",
        kind="not-portable",
        where=str(model.folder),
        hint="build it on this machine with --store and --set push=true",
    )
