"""Writes the tree of a deployment: models, backend directories and a Dockerfile in one folder, replaced in one step."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

import envpack
from envpack.archive.folder import locked_destination
from envpack.deployment.content import ContentEntry, content_of, content_of_model
from envpack.deployment.plan import SERVER_BACKENDS, Deployment, server_arguments
from envpack.repository.placement import python_of_backend
from envpack.support.bounded_reading import read_bytes
from envpack.support.errors import InputError, UsageError, disk_full
from envpack.support.folders import real_path
from envpack.support.links_and_modes import FILE, PROGRAM, LinkMode, Transfer, make_folder
from envpack.support.placed_files import STUB_NAME
from envpack.support.replacement import replaced_folder, write_text

MANIFEST_NAME = "envpack-layout.json"
SCHEMA = 1


class DeploymentManifest(TypedDict):
    """The content of the file `MANIFEST_NAME`."""

    schema: int
    envpack: str
    triton: str
    served_from: str
    models: list[dict[str, Any]]  # name, backend, stub and environment of each
    backends: list[dict[str, str]]  # name and Python of each
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
        link_mode: how execution environments get there, as in `envpack.archive.folder.place_folder`.

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
        # Thousands for each execution environment: a Path for each of them would take as long as the links to them.
        sizes = [os.lstat(f"{folder}/{name}").st_size for folder, _, names in os.walk(partial) for name in names]
        manifest = describe(deployment, len(sizes), sum(sizes))
        text = json.dumps(manifest, indent=1, sort_keys=True)
        write_text(partial / MANIFEST_NAME, f"{text}\n")
        write_text(partial / "Dockerfile", _dockerfile(deployment))
    return manifest


def is_inside(place: Path, deployment: Deployment) -> bool:
    """Whether a path leads into the repository of a deployment, or into a folder that a model in it is a link to."""
    real = real_path(place)
    folders = {real_path(folder) for model in deployment.models for folder in (model.folder, model.folder.parent)}
    return any(real.is_relative_to(folder) for folder in folders)


def _check_output(output: Path, deployment: Deployment) -> None:
    real, inside = real_path(output), is_inside(output, deployment)
    for model in deployment.models:
        folder = real_path(model.folder)
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
        if model.missing_version:
            make_folder(place / model.missing_version)
    for backend in deployment.backends:
        _copy_content(content_of(backend.folder), tree / "backends" / backend.name, transfer)


def _copy_content(entries: Iterable[ContentEntry], target: Path, transfer: Transfer) -> None:
    for entry in entries:
        if entry.in_environment and entry.kind == "file":
            transfer(str(entry.source), f"{target}/{entry.path}")
            continue
        path = target / entry.path
        if entry.kind == "folder":
            make_folder(path)
        elif entry.kind == "link":
            path.symlink_to(entry.target)
        else:
            _copy(entry.source, path)
            path.chmod(PROGRAM | 0o200 if entry.is_program else FILE | 0o200)


def _copy(path: Path, target: Path) -> None:
    size = path.stat().st_size
    if size == 0:  # or a file of the kernel, which may wait for content
        target.write_bytes(read_bytes(path))
        shutil.copystat(path, target)
        return
    if size > shutil.disk_usage(target.parent).free:
        raise disk_full(target)
    shutil.copy2(path, target)


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
    return {
        "schema": SCHEMA,
        "envpack": envpack.__version__,
        "triton": deployment.release.name,
        "served_from": deployment.served_from,
        "models": [
            {
                "name": model.name,
                "backend": model.backend,
                "environment": os.path.relpath(model.environment, model.folder) if model.environment else None,
                "stub": (model.folder / STUB_NAME).is_file(),
            }
            for model in deployment.models
        ],
        "backends": [{"name": one.name, "python": python_of_backend(one.name)} for one in deployment.backends],
        "files": files,
        "size": size,
        "command": list(server_arguments(deployment)),
    }
