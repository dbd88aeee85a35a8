"""Verifies published models: the real server loads a checked copy of what lies in an object store, or of an image."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from envpack.deployment.images.address import ImageAddress
from envpack.deployment.images.fetch import pull_image
from envpack.deployment.objects.fetch import copy_publication, no_published_models
from envpack.deployment.signing import Trust
from envpack.repository.folders import looks_like_model
from envpack.server.choice import ServerSpec
from envpack.server.stale_runs import temporary_folder
from envpack.store.location import Location, server_fault
from envpack.store.objects import Objects
from envpack.support.bounded_reading import read_bytes
from envpack.support.links_and_modes import FILE, FOLDER
from envpack.support.progress import SILENT, Progress
from envpack.support.text import counted
from envpack.verification.checks.server import check_published
from envpack.verification.run import verify
from envpack.verification.samples import SAMPLES_FILE, unreadable_samples
from envpack.verification.verdict import Verdict


def verify_published(
    location: Location,
    models: Sequence[str] = (),
    *,
    spec: ServerSpec | None = None,
    trust: Trust | None = None,
    progress: Progress = SILENT,
) -> Verdict:
    """Verify a repository in an object store, in a server of this machine.

    A copy is compared with what was published, and is what the server loads: nothing else can come in between, and no
    model gets the credentials of the store.

    Args:
        location: the repository.
        models: as for `envpack.verification.run.verify`.
        spec: how to run the server and verify; the server is a process of this machine.
        trust: who must have signed all models, before any of them is loaded.
        progress: receives each step.

    Raises:
        InputError: an object is not what was published (``published-changed``) or signed (``signature-invalid``), or a
            model is invalid.
        StorageError: the object store cannot be used.
        ServerError: there is no server, or it could not be started.
    """
    spec = spec or ServerSpec()
    with temporary_folder() as copy:
        progress.begin(f"compare {location} with what was published")
        copied = copy_publication(Objects(location), copy, progress, trust=trust)
        progress.end("the same, and signed" if trust else "the same" if copied.compared else "there is no record of it")
        if not any(map(looks_like_model, copy.iterdir())):
            raise no_published_models(location)
        folders = [str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_dir()]
        fault = server_fault(location, folders) if copied.compared else None
        _add_samples(copy, spec.samples, progress)
        verdict = verify(copy, models, spec=spec.saying(runtime="process"), progress=progress)
    if fault or not copied.compared:
        is_ok = verdict.ok and copied.compared
        verdict = dataclasses.replace(verdict, ok=is_ok, checks=(check_published(fault), *verdict.checks))
    return dataclasses.replace(verdict, repository=str(location))


def verify_image(
    address: ImageAddress,
    models: Sequence[str] = (),
    *,
    spec: ServerSpec | None = None,
    trust: Trust | None = None,
    progress: Progress = SILENT,
) -> Verdict:
    """Verify the models of an image in a registry, in a server of this machine that loads them from its files.

    Args:
        address: the image.
        models: as for `envpack.verification.run.verify`.
        spec: how to run the server and verify; the server is a process of this machine.
        trust: who must have signed the image, before any of it is fetched.
        progress: receives each step.

    Raises:
        InputError: the image has no models (``image-without-models``), is not signed (``signature-invalid``), or a
            model is invalid.
        StorageError: the registry cannot be used.
        ServerError: there is no server, or it could not be started.
    """
    spec = spec or ServerSpec()
    with temporary_folder() as folder:
        progress.begin(f"fetch oci://{address}")
        pulled = pull_image(address, folder, progress, trust=trust)
        progress.end("signed" if trust else "")
        _add_samples(pulled.models, spec.samples, progress)
        backends = pulled.backends if pulled.backends.is_dir() else None
        spec = dataclasses.replace(spec.saying(runtime="process"), backends=backends)
        verdict = verify(pulled.models, models, spec=spec, progress=progress)
    return dataclasses.replace(verdict, repository=f"oci://{pulled.image}")


def _add_samples(models: Path, repository: Path | None, progress: Progress) -> None:
    """Give published models the samples that their authors' repository has for them."""
    added = 0
    for model in (entry for entry in models.iterdir() if entry.is_dir()):
        samples = repository / model.name / SAMPLES_FILE if repository else None
        if samples is not None and os.path.lexists(samples) and not (model / SAMPLES_FILE).exists():
            try:
                content = read_bytes(samples)
            except OSError as error:
                raise unreadable_samples(samples, error) from error
            (model / SAMPLES_FILE).parent.mkdir(exist_ok=True)
            (model / SAMPLES_FILE).parent.chmod(FOLDER)
            (model / SAMPLES_FILE).write_bytes(content)
            (model / SAMPLES_FILE).chmod(FILE)
            added += 1
    if added:
        progress.detail(f"{counted(added, 'model')} with the samples of {repository}")
