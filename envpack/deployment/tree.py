"""Writes the tree of a deployment: models and backend directories in one folder, replaced in one step."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import envpack
from envpack.archive import locked_destination
from envpack.deployment.plan import DeployedModel, Deployment, server_arguments
from envpack.repository import PYTHON_BACKEND, STUB_NAME, Backend, python_of_backend
from envpack.support.errors import InputError, UsageError
from envpack.support.replacement import link_or_copy, replaced_folder

MANIFEST_NAME = "envpack-layout.json"
SCHEMA = 1


def assemble(deployment: Deployment, output: Path) -> dict[str, Any]:
    """Make ``output`` a folder that holds the models, the backends, and a description of them.

    Environments and stubs are hard links where the file system allows it; what people edit is copied. Whenever this is
    interrupted, ``output`` is what it was before or complete.

    Args:
        deployment: what it is to hold.
        output: made, or replaced if it holds a deployment already.

    Returns:
        The description, as the file `MANIFEST_NAME` in the folder has it.

    Raises:
        UsageError: ``output`` and a model's folder are within each other (``output-inside``).
        InputError: there is something else at ``output`` (``output-not-ours``).
        EnvironmentBuildError: the disk is full, or the folder cannot be written to.
    """
    output = output.absolute()
    _check_output(output, deployment)
    with locked_destination(output), replaced_folder(output) as partial:
        _fill(deployment, partial)
        description = _describe(deployment, partial)
        text = json.dumps(description, indent=1, sort_keys=True)
        (partial / MANIFEST_NAME).write_text(f"{text}\n", encoding="utf-8")
    return description


def _check_output(output: Path, deployment: Deployment) -> None:
    real = output.resolve()
    for model in deployment.models:
        folder = model.folder.resolve()
        if real.is_relative_to(folder.parent) or folder.is_relative_to(real):
            raise UsageError(
                "the tree cannot be within the repository, nor around it",
                kind="output-inside",
                where=str(output),
                hint=f"give a folder outside of {folder.parent}",
            )
    if output.is_dir() and (not any(output.iterdir()) or (output / MANIFEST_NAME).is_file()):
        return
    if output.is_symlink() or output.exists():
        raise InputError(
            "there is something here that `envpack layout` has not made, and it would be replaced",
            kind="output-not-ours",
            where=str(output),
            hint="name a folder that does not exist, or remove this one",
        )


def _fill(deployment: Deployment, tree: Path) -> None:
    (tree / "models").mkdir()
    (tree / "backends").mkdir()
    for model in deployment.models:
        _Copy(model.folder, _linked(model)).to(tree / "models" / model.name)
    for backend in deployment.backends:
        _Copy(backend.folder, {backend.stub}).to(tree / "backends" / backend.name)


def _linked(model: DeployedModel) -> set[Path]:
    """Files and folders that are only replaced as a whole, so that a hard link is safe."""
    return {model.folder / STUB_NAME, *({model.environment} if model.environment else ())}


class _Copy:
    """Copies a folder without hidden files; some of its files and folders become hard links."""

    def __init__(self, folder: Path, linked: set[Path]) -> None:
        self._folder = folder
        self._inside = folder.resolve()
        self._linked = linked

    def to(self, target: Path) -> None:
        self._folder_to(self._folder, target, is_linked=False)

    def _folder_to(self, folder: Path, target: Path, *, is_linked: bool) -> None:
        target.mkdir(mode=0o755)
        with os.scandir(folder) as entries:
            for entry in entries:
                path = Path(entry.path)
                # Within an environment every file counts, and is as envpack wrote it.
                if is_linked or not entry.name.startswith("."):
                    self._entry_to(path, target / entry.name, is_linked=is_linked or path in self._linked)

    def _entry_to(self, path: Path, target: Path, *, is_linked: bool) -> None:
        if path.is_symlink():
            if not is_linked or path in self._linked:
                path = self._resolved(path)
            if path.is_symlink():
                target.symlink_to(path.readlink())
                return
        if path.is_dir():
            self._folder_to(path, target, is_linked=is_linked)
        elif is_linked:
            link_or_copy(str(path), str(target))
        else:
            shutil.copy2(path, target)

    def _resolved(self, link: Path) -> Path:
        """What a link leads to if that is outside of the folder, and would be missing in the tree; else the link."""
        if str(link.readlink()).startswith(f"../{PYTHON_BACKEND}/"):
            return link  # of a backend, to the server's own
        real = link.resolve()
        return real if real.exists() and not real.is_relative_to(self._inside) else link


def _describe(deployment: Deployment, tree: Path) -> dict[str, Any]:
    files = [Path(folder, name) for folder, _, names in os.walk(tree) for name in names]
    return {
        "schema": SCHEMA,
        "envpack": envpack.__version__,
        "triton": deployment.release.name,
        "served_from": deployment.served_from,
        "models": [_described(model) for model in deployment.models],
        "backends": [_described_backend(backend) for backend in deployment.backends],
        "files": len(files),
        "size": sum(file.lstat().st_size for file in files),
        "command": list(server_arguments(deployment)),
    }


def _described(model: DeployedModel) -> dict[str, Any]:
    environment = model.environment.relative_to(model.folder) if model.environment else None
    return {
        "name": model.name,
        "backend": model.backend,
        "environment": str(environment) if environment else None,
        "stub": (model.folder / STUB_NAME).is_file(),
    }


def _described_backend(backend: Backend) -> dict[str, Any]:
    return {"name": backend.name, "python": python_of_backend(backend.name)}
