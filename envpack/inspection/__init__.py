"""Finds all problems of a model repository from its files alone: nothing is started, run or unpacked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.inspection.files import folder_findings as folder_findings
    from envpack.inspection.repository import (
        RepositoryInspection as RepositoryInspection,
        inspect_repository as inspect_repository,
        is_repository as is_repository,
    )
    from envpack.inspection.state import (
        BuildState as BuildState,
        build_state as build_state,
        record_requirements as record_requirements,
    )
    from envpack.inspection.stubs import fit_findings as fit_findings

__getattr__, __all__ = lazy_imports(__name__, __file__)
