"""Reads images: the one that models are put on, and the models of a published one, as announced and signed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envpack.archive.layer import LayerUnpacker
from envpack.deployment.folder import MANIFEST_NAME
from envpack.deployment.images.address import ImageAddress
from envpack.deployment.images.documents import (
    LAYER,
    Descriptor,
    Image,
    digest_of,
    is_index,
    parse_image,
    parse_index,
)
from envpack.deployment.images.layers import CONTENT, SHARED
from envpack.deployment.images.registry import Registry, connected
from envpack.deployment.images.signature import check_image_signature
from envpack.deployment.plan import SERVER_BACKENDS
from envpack.deployment.signing import Trust
from envpack.support.bounded_reading import parse_json, read_json
from envpack.support.errors import InputError, storage_errors
from envpack.support.progress import SILENT, Progress, count_bytes

_MOST_CONFIG = 8 << 20  # bytes
_COMPRESSED = (LAYER, "application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+zstd")


@dataclass(frozen=True)
class BaseImage:
    """An image that others are built on."""

    address: ImageAddress  # with the digest that the user gave
    config: Mapping[str, Any]
    layers: Sequence[Descriptor]
    diff_ids: Sequence[str]  # digests of the uncompressed layers


def read_base(registry: Registry, architecture: str) -> BaseImage:
    address = registry.address
    manifest = _manifest(registry, address.reference, architecture)
    try:
        image = parse_image(manifest)
        config = parse_json(registry.read_blob(image.config, _MOST_CONFIG))
        diff_ids = [str(digest) for digest in config["rootfs"]["diff_ids"]]
        platform = f"{config['os']}/{config['architecture']}"
    except (ValueError, KeyError, TypeError) as error:
        raise _bad(address, "it is no image that a container can be made from") from error
    if platform != f"linux/{architecture}":
        raise _bad(address, f"it is for {platform}, and the models are for linux/{architecture}")
    if len(diff_ids) != len(image.layers) or any(layer.media_type not in _COMPRESSED for layer in image.layers):
        raise _bad(address, "it has layers that cannot be copied")
    layers = [replace(layer, annotations={}) for layer in image.layers]  # which are about another image's content
    return BaseImage(address, config, layers, diff_ids)


def _manifest(registry: Registry, reference: str, architecture: str) -> bytes:
    """The manifest of an image, or of the image for a processor in an index."""
    address = registry.address
    content = registry.manifest(reference)
    if content is None:
        raise _bad(address, "the registry does not have it")
    if not is_index(content):
        return content
    try:
        found = [entry.digest for entry, platform in parse_index(content) if platform == f"linux/{architecture}"]
    except ValueError as error:
        raise _bad(address, str(error)) from error
    image = registry.manifest(found[0]) if found else None
    if image is None:
        raise _bad(address, f"it has no image for linux/{architecture}")
    return image


def _bad(address: ImageAddress, reason: str) -> InputError:
    fix = "give the digest of an image for the models' processor; `docker buildx imagetools inspect` prints digests"
    return InputError("bad-base-image", f"this base image cannot be used: {reason}", fix, str(address))


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


def pull_image(
    address: ImageAddress, folder: Path, progress: Progress = SILENT, *, trust: Trust | None = None
) -> PulledImage:
    """Fetch the models of an image that `publish_image` wrote. Each layer is compared with its digest.

    Args:
        address: the image.
        folder: an empty folder for its files.
        progress: receives the bytes.
        trust: who must have signed the image; nothing of it is fetched or unpacked before.

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
        if trust is not None:
            check_image_signature(registry, digest, trust)
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
    unpacker, left = LayerUnpacker(folder), _MOST_CONTENT
    file = folder.with_name(f"{folder.name}.layer")
    report = count_bytes(progress, sum(layer.size for layer in wanted))
    for layer in wanted:
        registry.save_blob(layer, file, report)
        with storage_errors(file):
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
    what = f"no models can be read from this image: {reason}"
    fix = "check the address, and whether a login answers there; or publish the models there with `envpack publish`"
    return InputError("image-without-models", what, fix, f"oci://{address}")
