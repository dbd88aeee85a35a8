"""Damaged artifacts: read, or refused in a documented way."""

import pickle
import zlib

import pytest
from hypothesis import given, strategies as st

from envpack.repository.adoption.answers import answers_of
from envpack.repository.adoption.artifact import Artifact
from envpack.repository.adoption.kinds import inspect_artifact
from tests.hostile import damaged, hostile, read_or_refused, with_one_value_replaced
from tests.unit.repository.adoption.test_mlflow_model import CONDA, MLMODEL, PYTHON_ENV

_TENSOR = {"name": "x", "datatype": "FP32", "dims": [1], "form": "array", "is_optional": False, "is_parameter": False}
_REPORT = {
    "inputs": [_TENSOR],
    "outputs": [_TENSOR],
    "is_batched": True,
    "rows_are_independent": True,
    "data": [{"x": [1.0]}],
    "validation_data": [{"x": [2.0]}],
    "notes": ["note"],
    "details": {"columns": []},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pkl").write_bytes(b"\x80\x04N.")
    return tmp_path


@hostile
@given(damaged(MLMODEL.encode()), damaged(PYTHON_ENV.encode()), damaged(CONDA.format("- ffmpeg\n").encode()))
def test_folders_of_mlflow(folder, model, python_env, conda):
    for name, content in (("MLmodel", model), ("python_env.yaml", python_env), ("conda.yaml", conda)):
        (folder / name).write_bytes(content)
    (folder / "requirements.txt").write_text("numpy\n")
    with read_or_refused():
        inspect_artifact(str(folder))


@hostile
@given(
    st.sampled_from([bytes, zlib.compress]), damaged(pickle.dumps({"_sklearn_version": "1.5.2", "x": pickle.Pickler}))
)
def test_pickles(folder, pack, content):
    (folder / "x.pkl").write_bytes(pack(content))
    with read_or_refused():
        inspect_artifact(str(folder / "x.pkl"))


@hostile
@given(damaged(b"import helper, os\nfrom a.b import c\ndef f(x: int = 1) -> str: ...\n"))
def test_modules(folder, content):
    (folder / "app.py").write_bytes(content)
    with read_or_refused():
        inspect_artifact("app:f")


@hostile
@given(with_one_value_replaced(_REPORT))
def test_reports_of_models(folder, report):
    with read_or_refused():
        answers_of(Artifact(kind="onnx", title="", source=folder, files={}, requirements={}), report, "")
