"""Verifies published models: the real server loads them from the object store itself, or from a pulled image."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from envpack.deployment import ImageAddress, PublicKey, copy_publication, pull_image
from envpack.repository import STUB_NAME
from envpack.server import ServerSpec, temporary_home
from envpack.store import Location, Objects, server_address, server_variables
from envpack.support.links_and_modes import FOLDER, PROGRAM
from envpack.support.progress import NoProgress, Progress
from envpack.verification.run import verify
from envpack.verification.verdict import Verdict


def verify_published(
    location: Location,
    models: Sequence[str] = (),
    *,
    spec: ServerSpec | None = None,
    key: PublicKey | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Verify a repository in an object store, in a server of this machine that loads it from there.

    A copy is compared with what was published, and is what the checks of files read.

    Args:
        location: the repository.
        models: as for `envpack.verification.verify`.
        spec: how to run the server and verify; the server is a process of this machine.
        key: who must have signed all models, before any of them is loaded.
        progress: receives each step.

    Raises:
        InputError: an object is not what was published (``published-changed``) or signed (``signature-invalid``), or a
            model is invalid.
        StorageError: the object store cannot be used.
        ServerError: there is no server, or it could not be started.
    """
    spec, progress = spec or ServerSpec(), progress or NoProgress()
    with temporary_home() as home:
        copy = home / "models"
        copy.mkdir()
        copy.chmod(FOLDER)
        progress.begin(f"compare {location} with what was published")
        copy_publication(Objects(location), copy, progress, key=key)
        progress.end("the same, and signed" if key else "the same")
        for stub in copy.glob(f"*/{STUB_NAME}"):
            stub.chmod(PROGRAM)  # as the server does
        spec = dataclasses.replace(
            spec.saying(runtime="process"), address=server_address(location), variables=server_variables()
        )
        verdict = verify(copy, models, spec=spec, progress=progress)
    return dataclasses.replace(verdict, repository=str(location))


def verify_image(
    address: ImageAddress,
    models: Sequence[str] = (),
    *,
    spec: ServerSpec | None = None,
    key: PublicKey | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Verify the models of an image in a registry, in a server of this machine that loads them from its files.

    Args:
        address: the image.
        models: as for `envpack.verification.verify`.
        spec: how to run the server and verify; the server is a process of this machine.
        key: who must have signed the image, before any of it is fetched.
        progress: receives each step.

    Raises:
        InputError: the image has no models (``image-without-models``), is not signed (``signature-invalid``), or a
            model is invalid.
        StorageError: the registry cannot be used.
        ServerError: there is no server, or it could not be started.
    """
    spec, progress = spec or ServerSpec(), progress or NoProgress()
    with temporary_home() as home:
        folder = home / "image"
        folder.mkdir()
        folder.chmod(FOLDER)
        progress.begin(f"fetch oci://{address}")
        pulled = pull_image(address, folder, progress, key=key)
        progress.end("signed" if key else "")
        backends = pulled.backends if pulled.backends.is_dir() else None
        spec = dataclasses.replace(spec.saying(runtime="process"), backends=backends)
        verdict = verify(pulled.models, models, spec=spec, progress=progress)
    return dataclasses.replace(verdict, repository=f"oci://{pulled.image}")
