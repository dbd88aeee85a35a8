"""envpack: from what a model requires to a Triton server that demonstrably serves it.

Everything that the command line does is here as well:

>>> from envpack import Settings, build_model, open_project, verify
>>> project = open_project(Path("repository"), Settings(python="3.10"))  # doctest: +SKIP
>>> build_model(project, "model_a")                       # doctest: +SKIP
>>> verify(project.repository, ["model_a"]).ok            # doctest: +SKIP
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

__version__ = "0.1.0"

if TYPE_CHECKING:
    from envpack.deployment.folder import assemble as assemble
    from envpack.deployment.images.address import (
        ImageAddress as ImageAddress,
        parse_image_address as parse_image_address,
    )
    from envpack.deployment.images.fetch import PulledImage as PulledImage, pull_image as pull_image
    from envpack.deployment.images.send import PublishedImage as PublishedImage, publish_image as publish_image
    from envpack.deployment.objects.content import published_files as published_files
    from envpack.deployment.objects.fetch import check_signed as check_signed
    from envpack.deployment.objects.send import Published as Published, publish as publish
    from envpack.deployment.plan import Deployment as Deployment, plan_deployment as plan_deployment
    from envpack.deployment.signing import (
        Trust as Trust,
        read_public_key as read_public_key,
        read_signing_key as read_signing_key,
        read_trust as read_trust,
    )
    from envpack.inspection.repository import inspect_repository as inspect_repository
    from envpack.server.choice import ServerSpec as ServerSpec
    from envpack.settings.project import Project as Project, open_project as open_project
    from envpack.settings.releases import Release as Release, find_release as find_release
    from envpack.settings.table import Settings as Settings
    from envpack.store.location import Location as Location, parse_location as parse_location
    from envpack.store.maintenance import (
        list_store as list_store,
        prune_store as prune_store,
        verify_store as verify_store,
    )
    from envpack.store.objects import Objects as Objects
    from envpack.store.shared import SharedStore as SharedStore, open_store as open_store
    from envpack.stub.build import Stub as Stub, build_stub as build_stub
    from envpack.stub.inspection import inspect_stub as inspect_stub
    from envpack.stub.matrix import find_pythons as find_pythons, plan_matrix as plan_matrix
    from envpack.stub.recipe import Cell as Cell
    from envpack.support.errors import EnvpackError as EnvpackError
    from envpack.verification.published import verify_image as verify_image, verify_published as verify_published
    from envpack.verification.run import verify as verify
    from envpack.verification.verdict import Verdict as Verdict
    from envpack.workflow.adoption import AdoptedModel as AdoptedModel, adopt as adopt
    from envpack.workflow.build import BuiltModel as BuiltModel, build_model as build_model
    from envpack.workflow.cache import (
        CacheCheck as CacheCheck,
        list_cache as list_cache,
        prune_cache as prune_cache,
        verify_cache as verify_cache,
    )
    from envpack.workflow.doctor.host import examine as examine
    from envpack.workflow.lock import LockedModel as LockedModel, lock_model as lock_model
    from envpack.workflow.project import project_store as project_store
    from envpack.workflow.publish import fetch_models as fetch_models
    from envpack.workflow.stubs import build_matrix as build_matrix
else:
    __getattr__, __dir__, __all__ = lazy_imports(__name__, __file__)
