"""What the commands do: the steps of a build, a lock, a matrix of stubs and the cache, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.conda import ChannelPackage as ChannelPackage
    from envpack.deployment import PublishedImage as PublishedImage
    from envpack.requirements import host_platform as host_platform
    from envpack.stub import Cell as Cell
    from envpack.verification import (
        ModelVerdict as ModelVerdict,
        Verdict as Verdict,
        VerifyOptions as VerifyOptions,
        combine_verdicts as combine_verdicts,
        write_report as write_report,
    )
    from envpack.workflow.build import (
        BuiltModel as BuiltModel,
        build_model as build_model,
        environment_in_cache as environment_in_cache,
        made_ingredients as made_ingredients,
    )
    from envpack.workflow.cache import (
        CacheCheck as CacheCheck,
        CacheEntry as CacheEntry,
        DamagedEntry as DamagedEntry,
        list_cache as list_cache,
        prune_cache as prune_cache,
        verify_cache as verify_cache,
    )
    from envpack.workflow.channel import add_python as add_python, list_channel as list_channel
    from envpack.workflow.doctor.examination import examine as examine
    from envpack.workflow.doctor.observation import Observation as Observation
    from envpack.workflow.lock import (
        LockedModel as LockedModel,
        lock_model as lock_model,
        resolve_lock as resolve_lock,
    )
    from envpack.workflow.machine import abilities as abilities
    from envpack.workflow.models import (
        check_model as check_model,
        chosen_folders as chosen_folders,
        complete_names as complete_names,
        model_names as model_names,
    )
    from envpack.workflow.plan import ModelPlan as ModelPlan, PlannedChange as PlannedChange, plan_model as plan_model
    from envpack.workflow.publish import (
        LaidOut as LaidOut,
        PublishedObjects as PublishedObjects,
        lay_out as lay_out,
        publish_objects as publish_objects,
        publish_to_registry as publish_to_registry,
    )
    from envpack.workflow.python_choice import ChosenPython as ChosenPython
    from envpack.workflow.recipe import Recipe as Recipe, TakenOver as TakenOver
    from envpack.workflow.recipe_file import read_recipe as read_recipe, recipe_text as recipe_text
    from envpack.workflow.recipes import (
        Made as Made,
        build_sources as build_sources,
        is_of_interpreter as is_of_interpreter,
        lock_recipes as lock_recipes,
        make_ingredients as make_ingredients,
        make_lock as make_lock,
        make_stub as make_stub,
        share_packages as share_packages,
    )
    from envpack.workflow.requests import (
        Build as Build,
        Placement as Placement,
        build_request as build_request,
        lock_request as lock_request,
    )
    from envpack.workflow.shared import stub_for as stub_for
    from envpack.workflow.stores import project_store as project_store
    from envpack.workflow.stub_matrix import (
        CellPlan as CellPlan,
        CellResult as CellResult,
        build_matrix as build_matrix,
        place as place,
        plan_build as plan_build,
    )
    from envpack.workflow.stub_plan import (
        PlannedStubs as PlannedStubs,
        WantedStubs as WantedStubs,
        build_one_stub as build_one_stub,
        plan_stubs as plan_stubs,
        stub_store as stub_store,
    )
    from envpack.workflow.verify import (
        models_to_verify as models_to_verify,
        verification_job as verification_job,
        verify_address as verify_address,
        verify_options as verify_options,
        verify_repository as verify_repository,
        verify_there as verify_there,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
