"""What the commands do: the steps of a build, a lock, a matrix of stubs and the cache, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.conda import ChannelPackage
    from envpack.deployment import PublishedImage, Trust, read_trust
    from envpack.stub import Cell
    from envpack.verification import ModelVerdict, Verdict, combine_verdicts, write_report
    from envpack.workflow.adoption import AdoptedModel, adopt
    from envpack.workflow.build import BuiltModel, build_model, environment_to_run
    from envpack.workflow.cache import CacheCheck, CacheEntry, list_cache, prune_cache, verify_cache
    from envpack.workflow.channel import add_python, list_channel
    from envpack.workflow.doctor.host import examine
    from envpack.workflow.doctor.services import Observation
    from envpack.workflow.inspect import (
        InspectedEnvironment,
        InspectedModels,
        InspectedStub,
        inspect_path,
    )
    from envpack.workflow.lock import LockedModel, lock_model
    from envpack.workflow.placement import unpacked_at_once
    from envpack.workflow.plan import ModelPlan, plan_model
    from envpack.workflow.project import (
        check_model,
        chosen_folders,
        complete_names,
        list_shared,
        model_names,
        project_store,
        prune_shared,
        repository_digest,
        verify_shared,
    )
    from envpack.workflow.publish import PublishedObjects, fetch_models, lay_out, publish_objects, publish_to_registry
    from envpack.workflow.recipe import Made, Recipe, read_recipe, recipe_text
    from envpack.workflow.recipes import (
        abilities,
        build_sources,
        is_of_interpreter,
        lock_recipes,
        look_ahead,
        make_ingredients,
        make_lock,
        make_stub,
        share_packages,
    )
    from envpack.workflow.shared import stub_for
    from envpack.workflow.stubs import (
        CellPlan,
        CellResult,
        PlannedStubs,
        WantedStubs,
        build_matrix,
        build_one_stub,
        output_missing,
        plan_build,
        plan_stubs,
        stub_store,
    )
    from envpack.workflow.verify import (
        check_published,
        models_to_verify,
        server_spec,
        verify_address,
        verify_repository,
        verify_there,
    )
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
