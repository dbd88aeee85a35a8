"""Finds all problems of a model repository from its files alone: nothing is started, run or unpacked.

`preflight_model` compares the stub and the execution environment of a model with a release and a host;
`find_mismatches` compares facts that the caller has read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.inspection.facts import (
        EnvironmentFacts,
        Host,
        image_host,
        read_environment_facts,
        read_stub_requirements,
        this_host,
    )
    from envpack.inspection.files import folder_findings
    from envpack.inspection.preflight import find_damage, find_mismatches, find_unsafe_archive, preflight_model
    from envpack.inspection.repository import RepositoryInspection, inspect_repository, is_repository
    from envpack.inspection.state import BuildState, build_state, record_requirements
    from envpack.inspection.stubs import fit_findings, placed_environment_error
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
