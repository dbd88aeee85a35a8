"""A tree, or a container image, that holds all that a server needs beyond itself: models and backends."""

from envpack.deployment.image import BuiltImage, ImageOptions, build_image
from envpack.deployment.plan import DeployedModel, Deployment, plan_deployment
from envpack.deployment.start import docker_command, server_arguments
from envpack.deployment.tree import MANIFEST_NAME, assemble

__all__ = [
    "MANIFEST_NAME",
    "BuiltImage",
    "DeployedModel",
    "Deployment",
    "ImageOptions",
    "assemble",
    "build_image",
    "docker_command",
    "plan_deployment",
    "server_arguments",
]
