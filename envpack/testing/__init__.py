"""Tests of models: the pytest plugin, and what `envpack test` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.testing.model import ModelUnderTest as ModelUnderTest, TritonModel as TritonModel
    from envpack.testing.models import ModelError as ModelError
    from envpack.testing.runner import (
        TestedModel as TestedModel,
        TestRun as TestRun,
        find_tests as find_tests,
        run_tests as run_tests,
    )

__getattr__, __all__ = lazy_imports(__name__, __file__)
