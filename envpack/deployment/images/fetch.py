"""Fetches the models of a published image, and refuses what is not signed or not what the registry announces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envpack.archive import LayerUnpacker
from envpack.deployment.folder import MANIFEST_NAME
from envpack.deployment.images.layers import SHARED
from envpack.deployment.images.send import CONTENT
from envpack.deployment.images.signature import check_image_signature
from envpack.deployment.plan import SERVER_BACKENDS
from envpack.deployment.registry.address import ImageAddress
from envpack.deployment.registry.client import Registry, connected
from envpack.deployment.registry.documents import Image, digest_of, parse_image
from envpack.deployment.signing.keys import PublicKey
from envpack.support.bounded_reading import read_json
from envpack.support.errors import InputError
from envpack.support.failures import storage_errors
from envpack.support.progress import Progress

_MOST_CONTENT = 64 << 30  # bytes of all files


@dataclass(frozen=True)
class PulledImage:
    """The models of an image, in a folder.

    Attributes:
        image: address of the image with its digest.
        models: the model repository.
        backends: the folder with backend directories; it may not exist.
    """

    image: str
    models: Path
    backends: Path


def pull_image(address: ImageAddress, folder: Path, progress: Progress, *, key: PublicKey | None = None) -> PulledImage:
    """Fetch the models of an image that `publish_image` wrote. Each layer is compared with its digest.

    Args:
        address: the image.
        folder: an empty folder for its files.
        progress: receives the bytes.
        key: who must have signed the image; nothing of it is fetched or unpacked before.

    Raises:
        InputError: kind ``image-without-models``: there is no such image, or envpack did not publish it; kind
            ``signature-invalid``; a layer is damaged (``environment-unreadable``) or too large (``archive-bomb``).
        StorageError: the registry cannot be used, or the disk is full.
    """
    with connected(address) as registry:
        content = registry.manifest(address.reference)
        if content is None:
            raise _unusable(address, "the registry does not have it")
        digest = digest_of(content)
        if key is not None:
            check_image_signature(registry, digest, key)
        _fetch(registry, _image(content, address), folder, progress)
    for root in (folder, folder / SHARED):
        if (root / MANIFEST_NAME).is_file():
            return _located(f"{address.name}@{digest}", folder, root / MANIFEST_NAME, address)
    raise _unusable(address, f"it has no {MANIFEST_NAME}")


def _image(content: bytes, address: ImageAddress) -> Image:
    try:
        image = parse_image(content)
    except ValueError as error:
        raise _unusable(address, str(error)) from error
    if not any(CONTENT in layer.annotations for layer in image.layers):
        raise _unusable(address, "envpack did not publish it")
    return image


def _fetch(registry: Registry, image: Image, folder: Path, progress: Progress) -> None:
    """Unpack the layers with models; those of the base image are not needed."""
    wanted = [layer for layer in image.layers if CONTENT in layer.annotations]
    unpacker, total, done, left = LayerUnpacker(folder), sum(layer.size for layer in wanted), 0, _MOST_CONTENT
    file = folder.with_name(f"{folder.name}.layer")
    for layer in wanted:
        with storage_errors(file):
            with file.open("wb") as out:
                for piece in registry.blob(layer):
                    out.write(piece)
                    done += len(piece)
                    progress.advance(done, total, "bytes")
            left -= unpacker.unpack(file, left)
            file.unlink()


def _located(image: str, folder: Path, manifest: Path, address: ImageAddress) -> PulledImage:
    try:
        served_from = str(read_json(manifest)["served_from"]).strip("/")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unusable(address, f"its {MANIFEST_NAME} is damaged") from error
    if manifest.parent == folder:
        return PulledImage(image, folder / "models", folder / "backends")
    if ".." in served_from.split("/") or not (folder / served_from).is_dir():
        raise _unusable(address, f"its {MANIFEST_NAME} names a folder that it does not have")
    return PulledImage(image, folder / served_from, folder / SERVER_BACKENDS.strip("/"))


def _unusable(address: ImageAddress, reason: str) -> InputError:
    return InputError(
        f"no models can be read from this image: {reason}",
        kind="image-without-models",
        where=f"oci://{address}",
        hint="check the address, or publish the models there with `envpack publish`",
    )
