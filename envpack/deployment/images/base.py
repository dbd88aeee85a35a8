"""The image that models are put on: read by its digest, for one platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envpack.deployment.registry.address import ImageAddress
from envpack.deployment.registry.client import Registry
from envpack.deployment.registry.documents import LAYER, Descriptor, is_index, parse_image, parse_index
from envpack.support.bounded_reading import parse_json
from envpack.support.errors import InputError

_MOST_CONFIG = 8 << 20  # bytes
_COMPRESSED = (LAYER, "application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+zstd")


@dataclass(frozen=True)
class BaseImage:
    """An image that others are built on.

    Attributes:
        address: its address, with the digest that the user gave.
        config: its configuration.
        layers: its layers.
        diff_ids: digests of the uncompressed layers.
    """

    address: ImageAddress
    config: Mapping[str, Any]
    layers: Sequence[Descriptor]
    diff_ids: Sequence[str]


def read_base(registry: Registry, architecture: str) -> BaseImage:
    """Read the image that a registry was connected for."""
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
    return InputError(
        f"this base image cannot be used: {reason}",
        kind="bad-base-image",
        where=str(address),
        hint="give the digest of an image for the models' processor; `docker buildx imagetools inspect` prints digests",
    )
