"""Finds incompatibilities of stub, execution environment, Triton release and host before a server starts.

Files are read, never run. `preflight_model` checks a model of a repository; `find_mismatches` compares facts that the
caller has read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.preflight.facts import (
        EnvironmentFacts,
        Host,
        StubRequirements,
        image_host,
        read_environment_facts,
        read_stub_requirements,
        this_host,
    )
    from envpack.preflight.model import find_damage, find_unsafe_archive, preflight_model
    from envpack.preflight.rules import find_mismatches
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
