"""What the commands do: the steps of a build, a lock, a matrix of stubs and the cache, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
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
    from envpack.workflow.doctor.examination import examine as examine
    from envpack.workflow.doctor.observation import Observation as Observation
    from envpack.workflow.lock import (
        LockedModel as LockedModel,
        lock_model as lock_model,
        resolve_lock as resolve_lock,
    )
    from envpack.workflow.plan import ModelPlan as ModelPlan, PlannedChange as PlannedChange, plan_model as plan_model
    from envpack.workflow.python_choice import ChosenPython as ChosenPython
    from envpack.workflow.recipe import Recipe as Recipe, TakenOver as TakenOver
    from envpack.workflow.recipe_file import read_recipe as read_recipe, recipe_text as recipe_text
    from envpack.workflow.requests import (
        Build as Build,
        Placement as Placement,
        build_request as build_request,
        lock_request as lock_request,
    )
    from envpack.workflow.stores import project_store as project_store
    from envpack.workflow.stub_matrix import (
        CellPlan as CellPlan,
        CellResult as CellResult,
        build_matrix as build_matrix,
        place as place,
        plan_build as plan_build,
    )
    from envpack.workflow.stubs import stub_for as stub_for

__getattr__, __all__ = lazy_imports(__name__, __file__)
