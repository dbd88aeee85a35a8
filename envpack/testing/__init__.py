"""Sends requests to models, on a real server or locally: the pytest plugin, `envpack test` and `envpack run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

# With `as`, because tests of users import these names, and their type checkers want each to be exported.
if TYPE_CHECKING:
    from envpack.server.tensors import Tensor as Tensor
    from envpack.testing.model import (
        ModelError as ModelError,
        ModelUnderTest as ModelUnderTest,
        TritonModel as TritonModel,
    )
    from envpack.testing.model_run import ModelRun as ModelRun, run_model as run_model
    from envpack.testing.runner import TestRun as TestRun, run_tests as run_tests
    from envpack.testing.trial import Answer as Answer, Trial as Trial
else:
    __getattr__, __dir__, __all__ = lazy_imports(__name__, __file__)
