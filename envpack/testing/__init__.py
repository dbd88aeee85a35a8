"""Tests of models: the pytest plugin, and what `envpack test` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.testing.model import ModelUnderTest, TritonModel
    from envpack.testing.models import ModelError
    from envpack.testing.runner import TestedModel, TestRun, find_tests, run_tests
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
