"""The documents of the OCI image specification: descriptors, manifests, indexes and configurations."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envpack.support.bounded_reading import parse_json

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
EMPTY = "application/vnd.oci.empty.v1+json"
IN_TOTO = "application/vnd.in-toto+json"
DSSE = "application/vnd.dsse.envelope.v1+json"
EMPTY_CONTENT = b"{}"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Docker's own types, for documents and layers with the same content.
_OF_DOCKER = {
    "application/vnd.docker.distribution.manifest.v2+json": MANIFEST,
    "application/vnd.docker.distribution.manifest.list.v2+json": INDEX,
    "application/vnd.docker.container.image.v1+json": CONFIG,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": LAYER,
}
MANIFESTS = (MANIFEST, INDEX, *(name for name, known in _OF_DOCKER.items() if known in (MANIFEST, INDEX)))


@dataclass(frozen=True)
class Descriptor:
    """A reference to content in a registry."""

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""  # "" if it is none
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, media_type: str, content: bytes) -> Descriptor:
        return cls(media_type, digest_of(content), len(content))

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.artifact_type:
            document["artifactType"] = self.artifact_type
        if self.annotations:
            document["annotations"] = dict(sorted(self.annotations.items()))
        return document


@dataclass(frozen=True)
class Image:
    """A manifest: an image, or an artifact."""

    config: Descriptor
    layers: Sequence[Descriptor]  # the lowest first


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def encoded(document: Mapping[str, Any]) -> bytes:
    """A document as JSON, the same bytes for the same content."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def parse_image(content: bytes) -> Image:
    document = _document(content, MANIFEST)
    try:
        return Image(_descriptor(document["config"]), tuple(map(_descriptor, document["layers"])))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it is no manifest of an image") from error


def parse_index(content: bytes) -> tuple[tuple[Descriptor, str], ...]:
    """Read an index: the manifests in it, each with its platform, as ``"linux/amd64"``."""
    document = _document(content, INDEX)
    try:
        entries = [(_descriptor(entry), entry.get("platform")) for entry in document["manifests"]]
        return tuple((found, f"{on.get('os')}/{on.get('architecture')}" if on else "") for found, on in entries)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it is no index of images") from error


def is_index(content: bytes) -> bool:
    try:
        document = parse_json(content)
    except ValueError:
        return False
    if not isinstance(document, dict):
        return False
    return _canonical(document.get("mediaType", INDEX if "manifests" in document else MANIFEST)) == INDEX


def _document(content: bytes, media_type: str) -> Mapping[str, Any]:
    document = parse_json(content)
    if not isinstance(document, dict) or document.get("schemaVersion") != 2:
        raise ValueError("it is no document of the OCI image specification")
    if _canonical(document.get("mediaType", media_type)) != media_type:
        raise ValueError(f"it is not of the type {media_type}")
    return document


def _canonical(media_type: Any) -> str:
    return _OF_DOCKER.get(str(media_type), str(media_type))


def _descriptor(document: Mapping[str, Any]) -> Descriptor:
    digest, size = document["digest"], document["size"]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or not isinstance(size, int) or size < 0:
        raise ValueError("it has a malformed digest or size")
    return Descriptor(
        _canonical(document["mediaType"]),
        digest,
        size,
        str(document.get("artifactType", "")),
        {str(name): str(value) for name, value in (document.get("annotations") or {}).items()},
    )
