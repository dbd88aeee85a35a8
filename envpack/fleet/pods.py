"""What all Kubernetes Jobs of envpack have in common: their rights, limits and names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import envpack
from envpack.fleet.overlay import Overlay

MEMORY = 4 << 30  # bytes, the limit of a container
CLIENT_SIDE_BYTES = 262_144  # kubectl apply puts a document into an annotation, whose limit this is
_NOBODY = 65534
_DEADLINE = 3600  # seconds until a Job is ended
_KEPT = 24 * 3600  # seconds that an ended Job stays, so that its verdict can be read


def named_job(
    prefix: str, kind: str, content: str, pod: dict[str, Any], overlay: Overlay, *, retries: int
) -> dict[str, Any]:
    """A Job (``batch/v1``) of one pod, whose name differs if what it is or what it works on does.

    A Job cannot be changed: with one name for all, `kubectl apply` would be refused, or `kubectl wait` would return
    with the result of another content.
    """
    labels = labels_of(kind)
    job = overlay.on(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "", "labels": labels},
            "spec": {
                "backoffLimit": retries,
                "activeDeadlineSeconds": _DEADLINE,
                "ttlSecondsAfterFinished": _KEPT,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }
    )
    digest = hashlib.sha256(json.dumps([content, job], sort_keys=True, default=str).encode()).hexdigest()[:12]
    job["metadata"]["name"] = f"{prefix[:50].strip('-')}-{digest}"
    return job


def unprivileged_pod(content: dict[str, Any], selected: dict[str, Any] | None = None) -> dict[str, Any]:
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


def resources(memory: int, *, cores: int, disk: int, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a container asks for and may take: bytes of memory, cores, and bytes of its node's disk."""
    most = {"memory": mebibytes(memory), "ephemeral-storage": mebibytes(disk)}
    return {
        "requests": {"cpu": "1", "memory": most["memory"], "ephemeral-storage": mebibytes(min(disk, 4 << 30))},
        "limits": {"cpu": str(cores), **most, **(more or {})},
    }


def mebibytes(size: int) -> str:
    """A size as a quantity, rounded up."""
    return f"{-(-size >> 20)}Mi"


def labels_of(kind: str) -> dict[str, str]:
    """The recommended labels; ``kind`` is the name of the application."""
    return {
        "app.kubernetes.io/name": kind,
        "app.kubernetes.io/version": envpack.__version__,
        "app.kubernetes.io/managed-by": "envpack",
    }


def from_secret(name: str) -> list[dict[str, Any]]:
    """Variables of a container from a Secret, such as ``AWS_ACCESS_KEY_ID``; it may be absent."""
    return [{"secretRef": {"name": name, "optional": True}}]


def jobs_yaml(documents: Sequence[dict[str, Any]]) -> str:
    """The documents as YAML, for ``kubectl apply -f -``."""
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, _data: object) -> bool:
            return True

    text: str = yaml.dump_all(documents, Dumper=Plain, sort_keys=False)
    return text
