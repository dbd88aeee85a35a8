"""Says before anything is started what will not go together: stub, environment, Triton release, machine.

Files are read, nothing of them is run. `preflight_model` looks at a model of a repository, `find_mismatches` compares
what its caller has read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.preflight.facts import (
        EnvironmentFacts as EnvironmentFacts,
        Host as Host,
        StubRequirements as StubRequirements,
        image_host as image_host,
        read_environment_facts as read_environment_facts,
        read_stub_requirements as read_stub_requirements,
        this_host as this_host,
    )
    from envpack.preflight.model import preflight_model as preflight_model
    from envpack.preflight.rules import Mismatch as Mismatch, find_mismatches as find_mismatches

__getattr__, __all__ = lazy_imports(__name__, __file__)
