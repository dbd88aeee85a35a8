"""Deployments: a folder, objects or an image in a registry with the models and backends that a server needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.deployment.content import texts_with_credentials
    from envpack.deployment.folder import assemble, is_inside
    from envpack.deployment.images.address import ImageAddress, parse_image_address
    from envpack.deployment.images.fetch import PulledImage, pull_image
    from envpack.deployment.images.send import PublishedImage, publish_image
    from envpack.deployment.objects.content import published_files
    from envpack.deployment.objects.digests import content_digest, pin
    from envpack.deployment.objects.fetch import check_signed, copy_publication, no_published_models
    from envpack.deployment.objects.place import place_publication
    from envpack.deployment.objects.prune import DigestAddress, parse_digest_address
    from envpack.deployment.objects.send import Published, publish
    from envpack.deployment.plan import MODELS_ON_SERVER, Deployment, docker_command, plan_deployment, server_arguments
    from envpack.deployment.signing import read_public_key, read_signing_key
    from envpack.deployment.statements import Trust, read_trust
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
