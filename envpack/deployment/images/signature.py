"""Signed statements about images, attached to them in the registry as artifacts that refer to the image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from envpack.deployment.signing import (
    PublicKey,
    SigningKey,
    parse_subjects,
    provenance,
    sign_statement,
    signature_invalid,
    verify_statement,
)
from envpack.support.errors import InputError

_MOST_STATEMENT = 64 << 20  # bytes
_MOST_ARTIFACTS = 100  # that are looked at


def sign_image(
    registry: Registry,
    image: Descriptor,
    parameters: Mapping[str, Any],
    dependencies: Sequence[Mapping[str, str]],
    key: SigningKey,
    send: Callable[[Descriptor, bytes], None],
) -> int:
    """Attach a signed statement to an image; the digest of its manifest covers everything in it.

    Returns:
        The bytes that were sent; 0 if the same statement was attached before.
    """
    subjects = {registry.address.name: image.digest.removeprefix("sha256:")}
    envelope = sign_statement(provenance(subjects, parameters, dependencies), key)
    statement, empty = Descriptor.of(DSSE, envelope), Descriptor.of(EMPTY, EMPTY_CONTENT)
    manifest = encoded(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": IN_TOTO,
            "config": empty.to_json(),
            "layers": [statement.to_json()],
            "subject": image.to_json(),
        }
    )
    if registry.manifest(digest_of(manifest)) == manifest:
        return 0
    send(empty, EMPTY_CONTENT)
    send(statement, envelope)
    registry.put_manifest(manifest, MANIFEST, digest_of(manifest))
    registry.add_referrer(image.digest, Descriptor(MANIFEST, digest_of(manifest), len(manifest), IN_TOTO))
    return len(envelope) + len(manifest)


def check_image_signature(registry: Registry, digest: str, key: PublicKey) -> None:
    """Check that a key has signed an image."""
    where = f"{registry.address.name}@{digest}"
    failure = signature_invalid(where, "the image has none", key)
    artifacts = [found for found in registry.referrers(digest) if found.artifact_type in (IN_TOTO, "")]
    for artifact in artifacts[:_MOST_ARTIFACTS]:
        try:
            if digest in _signed_by(registry, artifact, key, where):
                return
        except ValueError as error:
            failure = signature_invalid(where, str(error), key)
        except InputError as error:
            failure = error
    raise failure


def _signed_by(registry: Registry, artifact: Descriptor, key: PublicKey, where: str) -> set[str]:
    """The digests that a statement is about, if a key signed it."""
    manifest = registry.manifest(artifact.digest)
    image = parse_image(manifest) if manifest is not None else None
    if image is None or len(image.layers) != 1 or image.layers[0].media_type != DSSE:
        raise ValueError("what is attached to the image is no statement")
    envelope = registry.read_blob(image.layers[0], _MOST_STATEMENT)
    subjects = parse_subjects(verify_statement(envelope, key, where))
    return {f"sha256:{sha256}" for sha256 in subjects.values()}
