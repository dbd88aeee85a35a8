"""Writes the tree of a deployment: models and backend directories in one folder, replaced in one step."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TypedDict

import envpack
from envpack.archive import locked_destination
from envpack.deployment.plan import DeployedModel, Deployment, server_arguments
from envpack.repository import PYTHON_BACKEND, STUB_NAME, Backend, python_of_backend
from envpack.support.bounded_reading import read_bytes
from envpack.support.errors import InputError, UsageError
from envpack.support.modes import FILE, PROGRAM, make_folder
from envpack.support.replacement import replaced_folder, write_text
from envpack.support.storage_errors import disk_full
from envpack.support.transfer import LinkMode, Transfer

MANIFEST_NAME = "envpack-layout.json"
SCHEMA = 1


class ModelEntry(TypedDict):
    """A model in the manifest. ``environment`` is a path in the model's folder, None if it has no environment there."""

    name: str
    backend: str
    environment: str | None
    stub: bool


class BackendEntry(TypedDict):
    """A backend directory in the manifest, with the Python version that it is for."""

    name: str
    python: str


class DeploymentManifest(TypedDict):
    """The content of the file `MANIFEST_NAME`. ``command`` starts the server; ``size`` is in bytes."""

    schema: int
    envpack: str
    triton: str
    served_from: str
    models: list[ModelEntry]
    backends: list[BackendEntry]
    files: int
    size: int
    command: list[str]


def assemble(deployment: Deployment, output: Path, *, link_mode: LinkMode = "auto") -> DeploymentManifest:
    """Write a deployment to a folder: the models, the backend directories and a manifest.

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
    return manifest


def _check_output(output: Path, deployment: Deployment) -> None:
    real = output.resolve()
    for model in deployment.models:
        folder = model.folder.resolve()
        if real.is_relative_to(folder.parent) or folder.is_relative_to(real):
            raise UsageError(
                "the output folder cannot be inside the repository or contain it",
                kind="output-inside",
                where=str(output),
                hint=f"give a folder outside of {folder.parent}",
            )
    if output.is_dir() and (not any(output.iterdir()) or (output / MANIFEST_NAME).is_file()):
        return
    if output.is_symlink() or output.exists():
        raise InputError(
            "this exists, and `envpack layout` did not create it",
            kind="output-not-ours",
            where=str(output),
            hint="give a folder that does not exist, or remove this one",
        )


def _fill(deployment: Deployment, tree: Path, transfer: Transfer) -> None:
    make_folder(tree / "models")
    make_folder(tree / "backends")
    for model in deployment.models:
        _Copy(model.folder, model.environment, transfer).to(tree / "models" / model.name)
    for backend in deployment.backends:
        _Copy(backend.folder, None, transfer).to(tree / "backends" / backend.name)


class _Copy:
    """Copies a folder without hidden files; an environment in it is transferred whole."""

    def __init__(self, folder: Path, environment: Path | None, transfer: Transfer) -> None:
        self._folder = folder
        self._inside = folder.resolve()
        self._environment = environment
        self._transfer = transfer
        self._open: list[Path] = []  # the real folders that are being copied, each in the one before it

    def to(self, target: Path) -> None:
        self._folder_to(self._folder, target, in_environment=False)

    def _folder_to(self, folder: Path, target: Path, *, in_environment: bool) -> None:
        real = folder.resolve()
        if any(outer.is_relative_to(real) for outer in self._open):
            raise InputError(
                "this is a link to a folder that contains it, so that a copy would never end",
                kind="endless-link",
                where=str(folder),
                hint="remove the link, or let it name only what the model needs",
            )
        self._open.append(real)
        self._content_to(folder, target, in_environment=in_environment)
        self._open.pop()

    def _content_to(self, folder: Path, target: Path, *, in_environment: bool) -> None:
        make_folder(target)
        with os.scandir(folder) as entries:
            for entry in entries:
                path = Path(entry.path)
                # An execution environment is copied whole: its hidden files belong to packages.
                if in_environment or not entry.name.startswith("."):
                    inside = in_environment or path == self._environment
                    self._entry_to(path, target / entry.name, in_environment=inside)

    def _entry_to(self, path: Path, target: Path, *, in_environment: bool) -> None:
        original = path
        if path.is_symlink():
            if not in_environment or path == self._environment:
                path = self._resolved(path)
            if path.is_symlink():
                target.symlink_to(path.readlink())
                return
        if path.is_dir():
            self._folder_to(path, target, in_environment=in_environment)
        elif not path.is_file():
            raise InputError(
                "this is neither a file nor a folder, and cannot be deployed",
                kind="special-file",
                where=str(original),
                hint="remove it: a pipe, a socket or a device serves no model",
            )
        elif in_environment:
            self._transfer(str(path), str(target))
        else:
            _copy(path, target)
            target.chmod(PROGRAM | 0o200 if path.stat().st_mode & 0o100 else FILE | 0o200)

    def _resolved(self, link: Path) -> Path:
        """The target of a link if that is outside the folder and so missing in the tree, else the link itself."""
        if str(link.readlink()).startswith(f"../{PYTHON_BACKEND}/"):
            return link  # from a backend directory into the server's own
        real = link.resolve()
        return real if real.exists() and not real.is_relative_to(self._inside) else link


def _copy(path: Path, target: Path) -> None:
    """Copy a file with its attributes.

    Raises:
        StorageError: kind ``disk-full``: it does not fit.
        OSError: it cannot be read, as some that the kernel makes up, or not be written.
    """
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
    return {
        "schema": SCHEMA,
        "envpack": envpack.__version__,
        "triton": deployment.release.name,
        "served_from": deployment.served_from,
        "models": [_model_entry(model) for model in deployment.models],
        "backends": [_backend_entry(backend) for backend in deployment.backends],
        "files": len(files),
        "size": sum(file.lstat().st_size for file in files),
        "command": list(server_arguments(deployment)),
    }


def _model_entry(model: DeployedModel) -> ModelEntry:
    environment = model.environment.relative_to(model.folder) if model.environment else None
    return {
        "name": model.name,
        "backend": model.backend,
        "environment": str(environment) if environment else None,
        "stub": (model.folder / STUB_NAME).is_file(),
    }


def _backend_entry(backend: Backend) -> BackendEntry:
    return {"name": backend.name, "python": python_of_backend(backend.name)}
