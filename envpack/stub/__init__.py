"""Compiles the stub that embeds a Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.stub.build import Stub, build_from_recipe, build_stub, cached_stub, find_stub, keep_stub
    from envpack.stub.cache import changed_stub_files
    from envpack.stub.inspection import StubFacts, inspect_stub
    from envpack.stub.matrix import compile_stubs, find_pythons, plan_matrix
    from envpack.stub.prebuilt import prebuilt_pythons
    from envpack.stub.recipe import Cell, Recipe
    from envpack.stub.target import target_from_interpreter, target_from_prefix
    from envpack.stub.toolchain import find_tool, find_toolchain
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
