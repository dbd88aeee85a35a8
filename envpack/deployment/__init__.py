"""Deployments: a folder, objects or an image in a registry with the models and backends that a server needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.deployment.folder import MANIFEST_NAME as MANIFEST_NAME, assemble as assemble
    from envpack.deployment.images.address import (
        ImageAddress as ImageAddress,
        parse_image_address as parse_image_address,
    )
    from envpack.deployment.images.fetch import PulledImage as PulledImage, pull_image as pull_image
    from envpack.deployment.images.send import PublishedImage as PublishedImage, publish_image as publish_image
    from envpack.deployment.objects.content import (
        Publication as Publication,
        PublishedFile as PublishedFile,
        published_files as published_files,
    )
    from envpack.deployment.objects.fetch import check_signed as check_signed, copy_publication as copy_publication
    from envpack.deployment.objects.send import Published as Published, publish as publish
    from envpack.deployment.plan import (
        MODELS_ON_SERVER as MODELS_ON_SERVER,
        DeployedModel as DeployedModel,
        Deployment as Deployment,
        docker_command as docker_command,
        plan_deployment as plan_deployment,
        server_arguments as server_arguments,
    )
    from envpack.deployment.signing import (
        PublicKey as PublicKey,
        SigningKey as SigningKey,
        read_public_key as read_public_key,
        read_signing_key as read_signing_key,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
