"""Container registries: addresses of images, and a client that reads and writes blobs and manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.registry.address import ImageAddress as ImageAddress, parse_image_address as parse_image_address
    from envpack.registry.client import Registry as Registry, connected as connected
    from envpack.registry.documents import (
        CONFIG as CONFIG,
        DSSE as DSSE,
        EMPTY as EMPTY,
        EMPTY_CONTENT as EMPTY_CONTENT,
        IN_TOTO as IN_TOTO,
        INDEX as INDEX,
        LAYER as LAYER,
        MANIFEST as MANIFEST,
        Descriptor as Descriptor,
        Image as Image,
        digest_of as digest_of,
        encoded as encoded,
        is_index as is_index,
        parse_image as parse_image,
        parse_index as parse_index,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
