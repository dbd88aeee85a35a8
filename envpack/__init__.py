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
    from envpack.deployment import (
        Deployment as Deployment,
        ImageAddress as ImageAddress,
        Published as Published,
        PublishedImage as PublishedImage,
        PulledImage as PulledImage,
        Trust as Trust,
        assemble as assemble,
        check_signed as check_signed,
        parse_image_address as parse_image_address,
        plan_deployment as plan_deployment,
        publish as publish,
        publish_image as publish_image,
        published_files as published_files,
        pull_image as pull_image,
        read_public_key as read_public_key,
        read_signing_key as read_signing_key,
        read_trust as read_trust,
    )
    from envpack.inspection import inspect_repository as inspect_repository
    from envpack.server import ServerSpec as ServerSpec
    from envpack.settings import (
        Project as Project,
        Release as Release,
        Settings as Settings,
        find_release as find_release,
        open_project as open_project,
    )
    from envpack.store import (
        Location as Location,
        Objects as Objects,
        SharedStore as SharedStore,
        list_store as list_store,
        open_store as open_store,
        parse_location as parse_location,
        prune_store as prune_store,
        verify_store as verify_store,
    )
    from envpack.stub import (
        Cell as Cell,
        Stub as Stub,
        build_stub as build_stub,
        find_pythons as find_pythons,
        inspect_stub as inspect_stub,
        plan_matrix as plan_matrix,
    )
    from envpack.support.errors import EnvpackError as EnvpackError
    from envpack.verification import (
        Verdict as Verdict,
        verify as verify,
        verify_image as verify_image,
        verify_published as verify_published,
    )
    from envpack.workflow import (
        AdoptedModel as AdoptedModel,
        BuiltModel as BuiltModel,
        CacheCheck as CacheCheck,
        LockedModel as LockedModel,
        adopt as adopt,
        build_matrix as build_matrix,
        build_model as build_model,
        examine as examine,
        fetch_models as fetch_models,
        list_cache as list_cache,
        lock_model as lock_model,
        project_store as project_store,
        prune_cache as prune_cache,
        verify_cache as verify_cache,
    )
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
