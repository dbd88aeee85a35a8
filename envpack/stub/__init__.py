"""Compiles the stub that embeds a Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.repository import STUB_NAME as STUB_NAME
    from envpack.stub.build import (
        Stub as Stub,
        build_from_recipe as build_from_recipe,
        build_stub as build_stub,
        cached_stub as cached_stub,
        find_stub as find_stub,
        keep_stub as keep_stub,
    )
    from envpack.stub.cache import changed_stub_files as changed_stub_files
    from envpack.stub.inspection import StubFacts as StubFacts, inspect_stub as inspect_stub
    from envpack.stub.matrix import (
        Cell as Cell,
        compile_stubs as compile_stubs,
        find_pythons as find_pythons,
        plan_matrix as plan_matrix,
    )
    from envpack.stub.prebuilt import prebuilt_pythons as prebuilt_pythons
    from envpack.stub.recipe import Recipe as Recipe, source_folder as source_folder, stub_key as stub_key
    from envpack.stub.target import (
        StubTarget as StubTarget,
        is_supported as is_supported,
        machine_named as machine_named,
        target_from_interpreter as target_from_interpreter,
        target_from_prefix as target_from_prefix,
        this_machine as this_machine,
    )
    from envpack.stub.toolchain import (
        find_tool as find_tool,
        find_toolchain as find_toolchain,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
