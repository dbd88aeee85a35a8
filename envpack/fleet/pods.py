"""What all Kubernetes Jobs of envpack have in common: rights, limits and names, and what the user adds to them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import envpack
from envpack.support.bounded_reading import read_text
from envpack.support.errors import InputError, UsageError
from envpack.support.text import printable_line

_MOST_BYTES = 1 << 20
_MOST_PARTS = 100_000
# The field by which a list's elements are merged, as in Kubernetes' strategic merge; other lists are replaced.
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}

_LONGEST_NAME = 253  # characters
_PART = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_OBJECT = re.compile(rf"{_PART}(?:\.{_PART})*")
_OBJECT_RULE = "it has up to 253 small letters, digits, '-' and '.'"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d+)?"
_PATH = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = re.compile(rf"(?:{_HOST}/)?{_PATH}(?:/{_PATH})*(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?", re.ASCII)
_IMAGE_RULE = "write it like registry.example/team/name:tag or …@sha256:…, without https://"
_KINDS = {"claim": "a PersistentVolumeClaim", "secret": "a Secret"}
_SECRET = "envpack-store"  # noqa: S105 - the name of a Secret

# Where Kubernetes takes text alone: the mappings of text, and the value of a variable.
_OF_TEXT = ("annotations", "labels", "matchLabels", "nodeSelector")
_VARIABLE = "an element of env"
_CONTAINERS = ("containers", "initContainers")  # whose elements Kubernetes takes with an image only
# Text that Go's YAML, and so kubectl, reads as a boolean or a number if it has no quotes, and PyYAML does not.
_QUOTED_FOR_GO = re.compile(
    r"[yYnN]$|[-+]?(?:0[bBoOxX][0-9a-fA-F_]+|(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?)$"
)
_DIRECTIVES = ("merge", "replace", "delete")  # of $patch


@dataclass(frozen=True)
class Overlay:
    """What is merged into documents."""

    metadata: dict[str, Any] = field(default_factory=dict)  # for every document, such as {"namespace": "models"}
    spec: dict[str, Any] = field(default_factory=dict)  # for Jobs
    file: Path = Path()  # where both come from

    def on(self, document: dict[str, Any]) -> dict[str, Any]:
        """A document with the additions, merged as `kubectl patch` merges them."""
        patch = {"metadata": self.metadata, **({"spec": self.spec} if document["kind"] == "Job" else {})}
        try:
            merged: dict[str, Any] = _merged(document, patch, "the document")
        except ValueError as error:
            raise _bad(self.file, str(error)) from error
        merged.setdefault("metadata", {})["name"] = document["metadata"]["name"]  # whatever was replaced
        return merged


def read_overlay(file: Path) -> Overlay:
    import yaml

    try:
        content = yaml.safe_load(read_text(file, most=_MOST_BYTES))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise _bad(file, " ".join(str(error).split())) from error
    if not isinstance(content, dict):
        raise _bad(file, "it is not a YAML mapping")
    others = sorted(map(str, content.keys() - {"apiVersion", "kind", "metadata", "spec"}))
    if others or content.get("kind", "Job") != "Job":
        raise _bad(file, f"{others[0] if others else content['kind']} does not belong in a Job")
    parts = {name: content.get(name) or {} for name in ("metadata", "spec")}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise _bad(file, f"{name} is {_kind(part)}")
        try:
            unfit = _unfit(part, name)
        except RecursionError:  # an alias can name what it is in
            unfit = f"{name} is nested without end, or too deeply"
        if unfit:
            raise _bad(file, unfit)
    if "name" in parts["metadata"]:
        raise _bad(file, "the name of a Job is made of its content")
    return Overlay(parts["metadata"], parts["spec"], file)


def _unfit(whole: dict[str, Any], name: str) -> str:
    """What Kubernetes cannot take: keys that are no text, dates, infinite numbers, too much; empty for nothing."""
    for number, (place, value) in enumerate(_parts(whole, name)):
        if number > _MOST_PARTS:
            return f"it has more than {_MOST_PARTS} parts"
        odd = [key for key in value if not isinstance(key, str)] if isinstance(value, dict) else []
        if odd:
            return f"the key {odd[0]} in {place} is no text: write it in quotes"
        if number_in := _number_for_text(place, value):
            return f"{number_in} in {place} has to be text: write {json.dumps(value[number_in])} in quotes"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{place} is {value}, which JSON does not have"
        if not (value is None or isinstance(value, str | int | float | dict | list)):
            return f"{place} is {value}, which YAML reads as a {type(value).__name__}: write it in quotes"
    return ""


def _number_for_text(place: str, value: Any) -> str:
    """The first field of a mapping that is a number, or true or false, and has to be text; empty if none is."""
    fields = value.items() if isinstance(value, dict) else ()
    of_text = ((key, part) for key, part in fields if place in _OF_TEXT or (place, key) == (_VARIABLE, "value"))
    return next((key for key, part in of_text if isinstance(part, int | float)), "")


def _parts(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A value and all in it, each with the name of its place; what aliases name comes as often as they do."""
    yield name, value
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _parts(part, str(key))
    if isinstance(value, list):
        for part in value:
            yield from _parts(part, f"an element of {name}")


def _merged(base: Any, patch: Any, name: str) -> Any:
    if isinstance(base, dict | list) and type(base) is not type(patch):
        raise ValueError(f"{name} is {_kind(patch)} instead of {_kind(base)}")
    if isinstance(patch, list):
        return _merged_list(base, patch, name)
    if not isinstance(patch, dict):
        return patch
    changes = {key: value for key, value in patch.items() if key != "$patch"}
    merged = {} if patch.get("$patch") == "replace" else dict(base)
    for key, value in changes.items():
        if key.startswith("$"):
            raise ValueError(f"{name} has the directive {key}, which envpack does not carry out")
        if value is None or (isinstance(value, dict) and _directive(value, key) == "delete"):
            merged.pop(key, None)
            continue
        empty = type(value)() if isinstance(value, dict | list) else value
        merged[key] = _merged(merged.get(key) or empty, value, str(key))
    return merged


def _merged_list(base: list[Any], patch: list[Any], name: str) -> list[Any]:
    key = _KEYS.get(name)
    if key is None:
        return patch
    merged = {element[key]: element for element in base}
    for element in patch:
        if not isinstance(element, dict) or not isinstance(element.get(key), str):
            raise ValueError(f"an element of {name} has no {key}")
        if _directive(element, f"an element of {name}") == "delete":
            merged.pop(element[key], None)
        else:
            merged[element[key]] = _merged(merged.get(element[key], {}), element, f"an element of {name}")
            if name in _CONTAINERS and not merged[element[key]].get("image"):
                others = ", ".join(other[key] for other in base) or "none"
                raise ValueError(f"{element[key]} in {name} has no image; those that the Job has: {others}")
    return list(merged.values())


def _directive(patch: dict[str, Any], name: str) -> str:
    """What is done with the original of a mapping."""
    directive = patch.get("$patch", "merge")
    if directive not in _DIRECTIVES:
        raise ValueError(f"{name} has $patch: {directive}, and needs one of {', '.join(_DIRECTIVES)}")
    return str(directive)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else "a value"


def _bad(file: Path, what: str) -> InputError:
    fix = "write what differs from the printed Job, as for kubectl patch: metadata, and spec"
    return InputError("bad-overlay", f"no overlay of a Job: {what}", fix, str(file))


MEMORY = 4 << 30  # bytes, the limit of a container
_NOBODY = 65534
_DEADLINE = 3600  # seconds until a Job is ended
_KEPT = 24 * 3600  # seconds that an ended Job stays, so that its verdict can be read


def named_job(
    prefix: str,
    kind: str,
    content: str,
    pod: dict[str, Any],
    overlay: Overlay,
    *,
    retries: int,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A Job (``batch/v1``) of one pod, whose name differs if what it is or what it works on does.

    A Job cannot be changed: with one name for all, `kubectl apply` would be refused, or `kubectl wait` would return
    with the result of another content.
    """
    labels = labels_of(kind)
    noted = {"annotations": annotations} if annotations else {}
    job = overlay.on(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "", "labels": labels},
            "spec": {
                "backoffLimit": retries,
                "activeDeadlineSeconds": _DEADLINE,
                "ttlSecondsAfterFinished": _KEPT,
                "template": {"metadata": {"labels": labels, **noted}, "spec": pod},
            },
        }
    )
    digest = hashlib.sha256(json.dumps([content, job], sort_keys=True, default=str).encode()).hexdigest()[:12]
    job["metadata"]["name"] = f"{prefix[:50].strip('-')}-{digest}"
    if not job.get("spec", {}).get("template", {}).get("spec", {}).get("containers"):
        raise _bad(overlay.file, "it removes spec, template or containers, and a Job needs all of them")
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
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def as_words(words: Sequence[str]) -> list[str]:
    """Words of a command, in which Kubernetes would replace ``$(NAME)`` by a variable."""
    return [word.replace("$", "$$") for word in words]


def check_names(**names: str) -> None:
    """Refuse what Kubernetes accepts as the name of no object, and no image has; empty ones stand for a default."""
    for option, name in names.items():
        if not name and option != "claim":
            continue
        fits = _IMAGE if option.endswith("image") else _OBJECT
        if len(name) > _LONGEST_NAME or not fits.fullmatch(name):
            what = f"{printable_line(name)!r} cannot be the name of {_KINDS.get(option, 'an image')}"
            fix = f"correct --{option.replace('_', '-')}: {_IMAGE_RULE if fits is _IMAGE else _OBJECT_RULE}"
            raise UsageError("usage", what, fix)


def resources(
    memory: int, *, cores: int = 4, disk: int = 32 << 30, more: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What a container may take, by default enough to compile stubs and unpack environments: memory, cores, disk."""
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
    """Variables of a container, such as ``AWS_ACCESS_KEY_ID``, from the Secret or our own; it may be absent."""
    return [{"secretRef": {"name": name or _SECRET, "optional": True}}]


def jobs_yaml(documents: Sequence[dict[str, Any]]) -> str:
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, _data: object) -> bool:
            return True

    Plain.add_implicit_resolver("tag:yaml.org,2002:bool", _QUOTED_FOR_GO, None)
    text: str = yaml.dump_all(documents, Dumper=Plain, sort_keys=False)
    return text
