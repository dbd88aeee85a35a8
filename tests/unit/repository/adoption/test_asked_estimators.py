"""A pickled estimator declares its tensors and answers its example, with a module in place of joblib."""

import sys
from pathlib import Path

import pytest

from envpack.repository.adoption.answers import answers_of, ask
from envpack.repository.adoption.artifact import Artifact
from envpack.support.errors import InputError
from tests.tables import every_row

JOBLIB = """
import numpy as np


class Model:
    n_features_in_ = 3

    {body}


def load(file):
    return Model()
"""


@pytest.fixture
def answers(tmp_path):
    """The answers of an estimator by the body of its class."""

    def answers(body, python=Path(sys.executable), **details):
        (tmp_path / "joblib.py").write_text(JOBLIB.format(body=body))
        artifact = Artifact(
            kind="sklearn", title="a model", source=tmp_path, files={}, requirements={}, details=details
        )
        return ask(artifact, tmp_path, python, 60)

    return answers


def test_a_model_that_takes_no_negative_number_answers(answers):
    found = answers("def predict(self, rows): assert (rows >= 0).all(); return np.log1p(rows).sum(axis=1)")
    assert found.is_batched
    assert len(found.data) == 8


@every_row(
    ("body", "reason", "fix"),
    [
        (
            "def predict(self, rows): raise TypeError('no text')",
            "answer its example",
            "log the model with MLflow, with",
        ),
        ("def transform(self, rows): return rows", "it is a Model, which has no predict", "package:function"),
        ("raise ValueError('other version')", "be loaded", "write the file again with the versions that load it, or"),
        (
            "raise AttributeError(\"Can't get attribute 'Own' on <module 'utils' from the index>\")",
            "be loaded",
            "put the module beside it",
        ),
        ("import nowhere", "be loaded", "put the module beside it, or the package into a requirements.txt there"),
        ("import json.nowhere", "be loaded", "require a version of json that has json.nowhere, such as the one that"),
    ],
)
def test_the_fix_is_for_the_step_that_failed(answers, body, reason, fix):
    with pytest.raises(InputError) as refused:
        answers(body)
    assert reason in refused.value.message
    assert fix in refused.value.hint


@every_row(
    ("needs", "fix"),
    [
        (
            ["scikit-learn==1.8.0", "numpy"],
            "require scikit-learn==1.8.0 in place of 1.3.0, as the file was written with; or",
        ),
        (
            ["scikit-learn==1.2.2", "numpy<2"],
            "require scikit-learn==1.2.2 in place of 1.3.0 and numpy<2 in place of 2.0.2, as the file was",
        ),
        (["scikit-learn==1.3.0", "numpy"], "log the model with MLflow, with a signature"),
        (["scikit-learn==1.3_x", "numpy"], "log the model with MLflow, with a signature"),
        ([], "log the model with MLflow, with a signature"),
    ],
)
def test_a_model_that_other_versions_wrote_fails_because_of_these(answers, tmp_path, needs, fix):
    packages, python = tmp_path / "lib/python3.10/site-packages", tmp_path / "bin/python"
    for name in ("scikit_learn-1.3.0", "numpy-2.0.2"):
        (packages / f"{name}.dist-info").mkdir(parents=True, exist_ok=True)
    python.parent.mkdir(exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with pytest.raises(InputError) as refused:
        answers("def predict(self, rows): return self.multi_class", python, needs=needs)
    assert refused.value.hint.startswith(fix)


RUNTIME = "Fail: [ONNXRuntimeError] : 1 : FAIL : Load model from /a b/.m.partial/1/model.onnx failed:"
PLACE = "/onnxruntime_src/core/graph/model.cc:181 onnxruntime::Model::Model(onnx::ModelProto&&, const Options&) "


@every_row(
    ("error", "reason", "fix"),
    [
        (f"{RUNTIME}{PLACE}Unsupported model IR version: 13", ": Unsupported model IR version: 13", "--python 3.12"),
        (
            f"Exception: {PLACE[:-1]}::<lambda()> Failed to construct locale with name:en_US.UTF-8",
            "Exception: Failed to construct locale with name:en_US.UTF-8",
            "the option {'locale': 'C'}",
        ),
        (f"{RUNTIME}Fatal error: MyOp(-1) is not", "FAIL : Fatal error: MyOp(-1) is not", "onnx.checker.check_model"),
    ],
)
def test_what_onnx_runtime_says_is_told_without_its_own_source(error, reason, fix):
    artifact = Artifact(kind="onnx", title="", source=Path("m.onnx"), files={}, requirements={})
    with pytest.raises(InputError) as refused:
        answers_of(artifact, {"step": "be loaded", "error": error}, "")
    assert refused.value.message.endswith(reason)
    assert fix in refused.value.hint


@pytest.mark.parametrize(
    "error", ["ValueError: numpy.dtype size changed", "ImportError: numpy.core.multiarray failed to import"]
)
def test_packages_that_need_numpy_1_are_told_to_get_it(error):
    artifact = Artifact(kind="mlflow", title="", source=Path("m"), files={}, requirements={})
    with pytest.raises(InputError) as refused:
        answers_of(artifact, {"step": "be loaded", "error": error}, "")
    assert refused.value.hint.startswith("its packages need NumPy 1: add numpy<2 to each of its files")
