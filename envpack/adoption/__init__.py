"""Trained artifacts as models of Triton: an MLflow model, a scikit-learn or ONNX file, a Python function.

An artifact is only read here. It runs once, in the execution environment of the model that is made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.support.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from envpack.adoption.answers import Answers, ask
    from envpack.adoption.artifact import Artifact
    from envpack.adoption.files import write_artifact, write_served
    from envpack.adoption.kinds import fetched, inspect_artifact
else:
    __getattr__, __all__ = lazy_imports(__name__, __file__)
