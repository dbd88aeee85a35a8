"""Signed statements about images, attached to them in the registry as artifacts that refer to the image."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from envpack.deployment.images.documents import (
    DSSE,
    EMPTY,
    EMPTY_CONTENT,
    IN_TOTO,
    MANIFEST,
    Descriptor,
    digest_of,
    encoded,
    parse_image,
)
from envpack.deployment.images.registry import Registry
from envpack.deployment.signing import SigningKey, Statement, Trust, check_statement, signature_invalid, signed_anew
from envpack.support.errors import InputError

_MOST_STATEMENT = 64 << 20  # bytes
_MOST_ARTIFACTS = 100  # that are looked at, the newest first: a daily publication adds one each day
_CREATED = "org.opencontainers.image.created"


def sign_image(
    registry: Registry,
    image: Descriptor,
    parameters: Mapping[str, Any],
    dependencies: Sequence[Mapping[str, str]],
    keys: Sequence[SigningKey],
    send: Callable[[Descriptor, bytes], None],
) -> int:
    """Attach a signed statement; returns the bytes that were sent, 0 if the same one is attached and not a day old."""
    subjects = {registry.address.name: image.digest.removeprefix("sha256:")}
    statement = Statement("image", subjects, _address(registry), parameters, dependencies, time.time())
    for found in _envelopes(registry, image.digest):
        if isinstance(found, bytes) and signed_anew(statement, keys, found) == found:
            return 0
    envelope = signed_anew(statement, keys, None)
    described, empty = Descriptor.of(DSSE, envelope), Descriptor.of(EMPTY, EMPTY_CONTENT)
    created = {_CREATED: statement.document()["predicate"]["runDetails"]["metadata"]["finishedOn"]}
    manifest = encoded(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": IN_TOTO,
            "config": empty.to_json(),
            "layers": [described.to_json()],
            "subject": image.to_json(),
            "annotations": created,
        }
    )
    send(empty, EMPTY_CONTENT)
    send(described, envelope)
    registry.put_manifest(manifest, MANIFEST, digest_of(manifest))
    registry.add_referrer(image.digest, Descriptor(MANIFEST, digest_of(manifest), len(manifest), IN_TOTO, created))
    return len(envelope) + len(manifest)


def check_image_signature(registry: Registry, digest: str, trust: Trust) -> None:
    where = f"{registry.address.name}@{digest}"
    failure = signature_invalid(where, "the image has none", trust.keys)
    for envelope in _envelopes(registry, digest):
        if isinstance(envelope, ValueError):
            failure = signature_invalid(where, str(envelope), trust.keys)
            continue
        try:
            statement = check_statement(
                envelope, trust, "image", where=where, address=_address(registry), now=time.time()
            )
        except InputError as error:
            failure = error
            continue
        if digest.removeprefix("sha256:") in statement.subjects.values():
            return
        failure = signature_invalid(where, "it belongs to another image", trust.keys)
    raise failure


def _address(registry: Registry) -> str:
    """Where an image is, without its tag: that says nothing about what is signed."""
    return f"oci://{registry.address.name}"


def _envelopes(registry: Registry, digest: str) -> Iterator[bytes | ValueError]:
    """The envelopes that are attached to an image, or why something that is attached is none."""
    artifacts = [found for found in registry.referrers(digest) if found.artifact_type in (IN_TOTO, "")]
    artifacts.sort(key=lambda found: found.annotations.get(_CREATED, ""), reverse=True)
    for artifact in artifacts[:_MOST_ARTIFACTS]:
        try:
            manifest = registry.manifest(artifact.digest)
            image = parse_image(manifest) if manifest is not None else None
        except ValueError as error:
            yield error
            continue
        if image is None or len(image.layers) != 1 or image.layers[0].media_type != DSSE:
            yield ValueError("what is attached to the image is no statement")
        else:
            yield registry.read_blob(image.layers[0], _MOST_STATEMENT)
