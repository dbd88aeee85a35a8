"""Writes the tree of a deployment: models, backend directories and a Dockerfile in one folder, replaced in one step."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import envpack
from envpack.archive import locked_destination
from envpack.deployment.plan import SERVER_BACKENDS, DeployedModel, Deployment, lacks_version, server_arguments
from envpack.repository import PYTHON_BACKEND, STUB_NAME, python_of_backend
from envpack.support.bounded_reading import read_bytes, read_text
from envpack.support.errors import InputError, UsageError
from envpack.support.failures import disk_full
from envpack.support.links_and_modes import FILE, PROGRAM, LinkMode, Transfer, make_folder
from envpack.support.redaction import has_secret
from envpack.support.replacement import replaced_folder, write_text

_OF_AUTHORS = ("tests", "envpack", "training")
_TEST = re.compile(r"test_.*\.py|conftest\.py")
_TEXTS = (".txt", ".in", ".toml", ".yml", ".yaml", ".lock", ".cfg", ".conf", ".ini", ".json", ".sh")
_MOST_TEXT = 64 << 20  # bytes of a file that is searched for credentials
_LONGEST = 1024  # characters on each side of the :// in an address
_BETWEEN = re.compile(r"[\s\"',]")


@dataclass(frozen=True)
class ContentEntry:
    """A file, link or folder of a deployment.

    Attributes:
        path: relative to the folder; ``""`` is the folder itself.
        kind: what it is in the deployment.
        source: the file or folder that it is copied from.
        target: target of a link.
        is_program: whether a file is executable.
        in_environment: whether it is, or belongs to, the execution environment.
    """

    path: str
    kind: Literal["file", "link", "folder"]
    source: Path
    target: str = ""
    is_program: bool = False
    in_environment: bool = False


def is_for_authors(path: str) -> bool:
    """Whether a path below a model's folder is of no use to a server: tests, samples, and what trained the model.

    Servers warn of such folders.
    """
    first = path.partition("/")[0]
    return first in _OF_AUTHORS or (first == path and _TEST.fullmatch(path) is not None)


def content_of_model(model: DeployedModel) -> Iterator[ContentEntry]:
    """The content of a model's folder, as `content_of`, without what is for its authors or has credentials."""
    return (entry for entry in _all_of(model) if not _is_left_out(entry))


def texts_with_credentials(deployment: Deployment) -> tuple[str, ...]:
    """A caution for each text file of the models that has a password in an address, and is left out."""
    return tuple(
        f"{model.name}/{entry.path} contains credentials and is left out"
        for model in deployment.models
        for entry in _all_of(model)
        if _is_left_out(entry)
    )


def _all_of(model: DeployedModel) -> Iterator[ContentEntry]:
    return _Walk(model.folder, model.environment, is_model=True).folder(model.folder, "", in_environment=False)


def _is_left_out(entry: ContentEntry) -> bool:
    return entry.kind == "file" and not entry.in_environment and has_credentials(entry.source)


def content_of(folder: Path, environment: Path | None = None) -> Iterator[ContentEntry]:
    """The content of a folder without hidden files, sorted, each folder before what is in it.

    Links stay links if they lead to the same file in the deployment; others are followed. An environment is complete:
    its hidden files belong to packages, and its links stay.
    """
    return _Walk(folder, environment, is_model=False).folder(folder, "", in_environment=False)


class _Walk:
    def __init__(self, root: Path, environment: Path | None, *, is_model: bool) -> None:
        self._root, self._inside = root, root.resolve()
        self._is_model = is_model
        self._environments: set[str] = set()  # the environment's path, and the one that it is a link to
        if environment is not None:
            found = (os.path.relpath(environment, root), os.path.relpath(environment.resolve(), self._inside))
            self._environments = {path for path in found if not path.startswith(".." + os.sep)}
        self._open: list[Path] = []  # the real folders that are being walked, each in the one before it

    def folder(self, folder: Path, path: str, *, in_environment: bool) -> Iterator[ContentEntry]:
        real = folder.resolve()
        if any(outer.is_relative_to(real) for outer in self._open):
            what = "this is a link to a folder that contains it, so that a copy would never end"
            fix = "remove the link, or let it name only what the model needs"
            raise InputError("endless-link", what, fix, str(folder))
        yield ContentEntry(path, "folder", folder, in_environment=in_environment)
        self._open.append(real)
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - only names are needed
            below = f"{path}/{name}" if path else name
            if in_environment or self._has(below):
                inside = in_environment or below in self._environments
                yield from self._entry(folder / name, below, in_environment=inside)
        self._open.pop()

    def _entry(self, original: Path, path: str, *, in_environment: bool) -> Iterator[ContentEntry]:
        source = original
        if source.is_symlink():
            if not in_environment or path in self._environments:
                source = self._resolved(source, path)
            if source.is_symlink():
                target = str(source.readlink())
                yield ContentEntry(path, "link", source, target, in_environment=in_environment)
                return
        if source.is_dir():
            yield from self.folder(source, path, in_environment=in_environment)
        elif source.is_file():
            program = bool(source.stat().st_mode & 0o100)
            yield ContentEntry(path, "file", source, is_program=program, in_environment=in_environment)
        else:
            what = "this is neither a file nor a folder, and cannot be deployed"
            fix = "remove it: a pipe, a socket or a device serves no model"
            raise InputError("special-file", what, fix, str(original))

    def _has(self, path: str) -> bool:
        """Whether the deployment has a path: it is not hidden or for authors, or it leads to the environment."""
        if any(f"{path}/".startswith(f"{place}/") or place.startswith(f"{path}/") for place in self._environments):
            return True
        hidden = path != "." and any(part.startswith(".") for part in path.split("/"))
        return not hidden and not (self._is_model and is_for_authors(path))

    def _resolved(self, link: Path, path: str) -> Path:
        """The target of a link that leads nowhere, or elsewhere, in the deployment; else the link itself."""
        text = str(link.readlink())
        if not self._is_model and text.startswith(f"../{PYTHON_BACKEND}/"):
            return link  # from a backend directory into the server's own
        real = link.resolve()
        return real if real.exists() and not self._leads_to(real, path, text) else link

    def _leads_to(self, real: Path, path: str, text: str) -> bool:
        """Whether a link at a path leads to the same file in the deployment; a path outside it begins with ``..``."""
        target = os.path.normpath(os.path.join(os.path.dirname(path), text))  # noqa: PTH118, PTH120
        if os.path.isabs(text) or not self._has(target):  # noqa: PTH117
            return False
        return self._has(os.path.relpath(real, self._inside)) and (self._root / target).resolve() == real


def has_credentials(file: Path) -> bool:
    """Whether a text that installers read, such as requirements, has a password in an address."""
    if not file.name.endswith(_TEXTS) or file.stat().st_size > _MOST_TEXT:
        return False
    text = read_text(file, errors="replace", most=_MOST_TEXT)
    return any(map(has_secret, _addresses(text)))


def _addresses(text: str) -> Iterator[str]:
    """What is around each ``://`` of a text, up to a blank, a quote or a comma, and cut to a length."""
    at = text.find("://")
    while at >= 0:
        before, after = text[max(at - _LONGEST, 0) : at], text[at : at + _LONGEST]
        yield _BETWEEN.split(before)[-1] + _BETWEEN.split(after, maxsplit=1)[0]
        at = text.find("://", at + 3)


MANIFEST_NAME = "envpack-layout.json"
SCHEMA = 1


class DeploymentManifest(TypedDict):
    """The content of the file `MANIFEST_NAME`.

    Attributes:
        models: name, backend and stub of each, and its environment: a path from the model's folder, or
            None.
        backends: name of each backend directory, and the Python version that it is for.
        size: bytes.
        command: starts the server.
    """

    schema: int
    envpack: str
    triton: str
    served_from: str
    models: list[dict[str, Any]]
    backends: list[dict[str, str]]
    files: int
    size: int
    command: list[str]


def assemble(deployment: Deployment, output: Path, *, link_mode: LinkMode = "auto") -> DeploymentManifest:
    """Write a deployment to a folder: the models, the backend directories, a manifest and a Dockerfile.

    Execution environments are placed by ``link_mode``; stubs, and files that users edit, are copied. If the process is
    interrupted, ``output`` is unchanged or complete.

    Args:
        deployment: content of the folder.
        output: the folder; it is created, or replaced if it contains a deployment.
        link_mode: how execution environments get there, as in `envpack.archive.place_folder`.

    Returns:
        The content of the file `MANIFEST_NAME` in the folder.

    Raises:
        UsageError: ``output`` is inside the repository or contains it (``output-inside``).
        InputError: ``output`` exists and is not a deployment (``output-not-ours``).
        StorageError: the disk is full, the folder is not writable, or the file system does not support the link mode.
    """
    output = output.absolute()
    _check_output(output, deployment)
    with locked_destination(output), replaced_folder(output) as partial:
        _fill(deployment, partial, Transfer(link_mode, output))
        manifest = _manifest(deployment, partial)
        text = json.dumps(manifest, indent=1, sort_keys=True)
        write_text(partial / MANIFEST_NAME, f"{text}\n")
        write_text(partial / "Dockerfile", _dockerfile(deployment))
    return manifest


def is_inside(place: Path, deployment: Deployment) -> bool:
    """Whether a path leads into the repository of a deployment, or into a folder that a model in it is a link to."""
    real = place.resolve()
    folders = {folder.resolve() for model in deployment.models for folder in (model.folder, model.folder.parent)}
    return any(real.is_relative_to(folder) for folder in folders)


def _check_output(output: Path, deployment: Deployment) -> None:
    real, inside = output.resolve(), is_inside(output, deployment)
    for model in deployment.models:
        folder = model.folder.resolve()
        if inside or real.is_relative_to(folder.parent) or folder.is_relative_to(real):
            what = "the output folder cannot be inside the repository or contain it"
            raise UsageError("output-inside", what, f"give a folder outside of {folder.parent}", str(output))
    if output.is_dir() and (not any(output.iterdir()) or (output / MANIFEST_NAME).is_file()):
        return
    if output.is_symlink() or output.exists():
        what = "this exists, and `envpack layout` did not create it"
        raise InputError("output-not-ours", what, "give a folder that does not exist, or remove this one", str(output))


def _fill(deployment: Deployment, tree: Path, transfer: Transfer) -> None:
    make_folder(tree / "models")
    make_folder(tree / "backends")
    for model in deployment.models:
        place = tree / "models" / model.name
        _copy_content(content_of_model(model), place, transfer)
        if lacks_version(model):
            make_folder(place / "1")
    for backend in deployment.backends:
        _copy_content(content_of(backend.folder), tree / "backends" / backend.name, transfer)


def _copy_content(entries: Iterable[ContentEntry], target: Path, transfer: Transfer) -> None:
    """Copy a folder of a deployment; an environment in it is transferred."""
    for entry in entries:
        path = target / entry.path
        if entry.kind == "folder":
            make_folder(path)
        elif entry.kind == "link":
            path.symlink_to(entry.target)
        elif entry.in_environment:
            transfer(str(entry.source), str(path))
        else:
            _copy(entry.source, path)
            path.chmod(PROGRAM | 0o200 if entry.is_program else FILE | 0o200)


def _copy(path: Path, target: Path) -> None:
    """Copy a file with its attributes."""
    size = path.stat().st_size
    if size == 0:  # or a file of the kernel, which may wait for content
        target.write_bytes(read_bytes(path))
        shutil.copystat(path, target)
        return
    if size > shutil.disk_usage(target.parent).free:
        raise disk_full(target)
    shutil.copy2(path, target)


def _manifest(deployment: Deployment, tree: Path) -> DeploymentManifest:
    files = [Path(folder, name) for folder, _, names in os.walk(tree) for name in names]
    return describe(deployment, len(files), sum(file.lstat().st_size for file in files))


def _dockerfile(deployment: Deployment) -> str:
    """An image that serves the tree. Its base is a build argument, as the release's image may have another name."""
    copies = [("models", f"{deployment.served_from.rstrip('/')}/"), (MANIFEST_NAME, f"/opt/envpack/{MANIFEST_NAME}")]
    if deployment.backends:
        copies.append(("backends", f"{SERVER_BACKENDS}/"))
    lines = [
        f"ARG BASE={deployment.release.image}",
        "FROM $BASE",
        *("COPY {}".format(json.dumps(pair).replace("$", "\\\\$")) for pair in copies),
        "ENV PYTHONNOUSERSITE=1",
        f"CMD {json.dumps(server_arguments(deployment))}",
    ]
    return "\n".join(lines) + "\n"


def describe(deployment: Deployment, files: int, size: int) -> DeploymentManifest:
    """The manifest of a deployment with a number of files and bytes."""
    return {
        "schema": SCHEMA,
        "envpack": envpack.__version__,
        "triton": deployment.release.name,
        "served_from": deployment.served_from,
        "models": [_model_entry(model) for model in deployment.models],
        "backends": [{"name": one.name, "python": python_of_backend(one.name)} for one in deployment.backends],
        "files": files,
        "size": size,
        "command": list(server_arguments(deployment)),
    }


def _model_entry(model: DeployedModel) -> dict[str, Any]:
    environment = os.path.relpath(model.environment, model.folder) if model.environment else None
    return {
        "name": model.name,
        "backend": model.backend,
        "environment": environment,
        "stub": (model.folder / STUB_NAME).is_file(),
    }
