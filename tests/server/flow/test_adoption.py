"""Trained models become Triton models without an edit, and answer as they do in their own library."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from envpack.repository.model import open_model
from envpack.settings.project import open_project
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.progress import NoProgress
from envpack.workflow.build import environment_in_cache
from tests.needed_pythons import need

TRAINING = Path(__file__).with_name("training.py")
# MLflow without the tracking server, and five of its flavors.
REQUIREMENTS = {
    "3.9": (
        *("mlflow-skinny==2.22.5", "cloudpickle==3.1.2", "numpy==2.0.2", "pandas==2.3.3", "scikit-learn==1.6.1"),
        *("scipy==1.13.1", "xgboost-cpu==2.1.4", "lightgbm==4.6.0", "statsmodels==0.14.6"),
    ),
    "3.12": (
        *("mlflow-skinny==3.17.2", "cloudpickle==3.1.2", "numpy==2.5.5", "pandas==3.1.1", "scikit-learn==1.9.1"),
        *("scipy==1.18.1", "xgboost-cpu==3.4.1", "lightgbm==4.7.0", "statsmodels==0.15.0"),
        *("skops==0.16.0", "onnx==1.23.2", "onnxruntime==1.32.0"),
    ),
}
MODELS = {
    "3.9": ("sklearn", "xgboost", "lightgbm", "runs:/RUN/statsmodels", "models:/shout/1"),
    "3.12": (
        *("sklearn", "xgboost", "lightgbm", "statsmodels", "every_kind", "arrays", "anything", "words", "loud"),
        *("classifier.joblib", "linear.onnx"),
    ),
}
FUNCTION = """
from typing import Annotated

import numpy as np
from factors import FACTOR
from numpy.typing import NDArray

Rows = Annotated[np.ndarray, np.float32, (-1, 2)]


def scaled(rows: Rows) -> Annotated[NDArray[np.float32], (-1, 2)]:
    if (rows > 100).any():
        raise ValueError("too large")
    return rows * FACTOR


def thousands(number: int = 3) -> int:
    return number * 1000
"""
OLDER = """
from typing import List, Optional, Tuple

import numpy as np
from typing_extensions import Annotated

Flat = Annotated[np.ndarray, np.int64, (-1,)]


def shouted(words: List[str]) -> List[str]:
    return [word.upper() for word in words]


def halves(numbers: Flat, by: Optional[int] = None) -> Tuple[Flat, Flat]:
    assert numbers.ndim == 1
    return numbers // (by or 2), numbers % (by or 2)
"""
# Requests that a server joins; and a model whose configuration was edited.
TESTS = """
import pytest


def test_a_wrong_row_fails_alone(triton_model):
    requests = [{"rows": [[1, 2]]}, {"rows": [[3, 101]]}, {"rows": [[5, 6], [7, 8]]}]
    first, wrong, last = triton_model("scaled").infer_batch(requests, return_errors=True)
    assert first["result"].tolist() == [[3, 6]]
    assert "ValueError: too large" in str(wrong)
    assert last["result"].tolist() == [[15, 18], [21, 24]]


def test_a_request_may_be_empty_if_all_is_optional(triton_model):
    assert triton_model("thousands").infer({})["result"].tolist() == [3000]


def test_a_number_that_does_not_fit_is_an_error(triton_model):
    with pytest.raises(Exception, match="the model answered 3000000000, which does not fit into TYPE_INT32"):
        triton_model("thousands").infer({"number": [3_000_000]})
"""


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains models in an environment with their own requirements; gives the folder with all of them.

    Its MLflow is on PATH then, with a registry of its own.
    """

    def run(python):
        model = tmp_path / "trainer/model"
        (model / "1").mkdir(parents=True)
        (model / "1/model.py").touch()
        (model / "config.pbtxt").write_text('backend: "python"\n')
        lines = "".join(f"- {requirement}\n" for requirement in REQUIREMENTS[python])
        (model / "python_env.yaml").write_text(f"python: '{python}'\ndependencies:\n{lines}")
        environment = environment_in_cache(open_project(model.parent), open_model(model), NoProgress())
        trained = tmp_path / "trained"
        trained.mkdir()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "registry").as_uri())
        monkeypatch.setenv("PATH", f"{environment.prefix / 'bin'}{os.pathsep}{os.environ['PATH']}")
        command = [environment.prefix / "bin/python", TRAINING, trained, *REQUIREMENTS[python]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
        return trained

    return run


def add_samples(file, more):
    """Samples that envpack did not make, in a file with those that it made."""
    samples = json.loads(file.read_text())
    assert samples["data"]
    for key in ("data", "validation_data"):
        samples[key] += more[key]
    samples["envpack"] = more["envpack"]
    file.write_text(json.dumps(samples))
    return len(samples["data"])


def verified(envpack_json, repository):
    """How many samples of each model were right, and how many were sent, once the repository is built."""
    code, document = envpack_json("build", "--repository", repository)
    assert code == 0, document
    _, document = envpack_json("verify", "--repository", repository, "--timeout", "300")
    models = document["verdict"]["models"]
    assert document["verdict"]["ok"], [model["failure"] for model in models]
    return {model["name"]: (model["samples"]["right"], model["samples"]["sent"]) for model in models}


@pytest.mark.timeout(1200)  # nine environments, of which some take minutes to install
@pytest.mark.thorough
@pytest.mark.parametrize("python", ["3.9", "3.12"])
def test_trained_models_are_served_and_answer_as_in_their_own_library(python, tmp_path, train, envpack_json):
    need(python)
    trained, repository, count = train(python), tmp_path / "repository", {}
    for name in MODELS[python]:
        folder = repository / re.search(r"\w+", name.removeprefix("models:/").removeprefix("runs:/RUN/"))[0]
        artifact = name.replace("RUN", (trained / "run").read_text()) if ":" in name else trained / name
        named = ["--python", python] if "." in name else []
        code, document = envpack_json("init", "--from", artifact, folder, *named)
        assert (code, document["models"]) == (0, [folder.name]), document
        more = json.loads((trained / f"{folder.name}.json").read_text())
        count[folder.name] = add_samples(folder / "envpack/smoke.json", more)
    code, document = envpack_json("init", "--from", "models:/none/1", repository / "none")
    assert (code, document["error"]["kind"]) == (4, "artifact-missing"), document
    assert verified(envpack_json, repository) == {name: (sent, sent) for name, sent in count.items()}


def test_a_function_is_served_without_an_edit(tmp_path, envpack_json, monkeypatch):
    python = need(find_release(DEFAULT_RELEASE).python)
    source, repository = tmp_path / "source", tmp_path / "repository"
    source.mkdir()
    (source / "scaling.py").write_text(FUNCTION)
    (source / "factors.py").write_text("FACTOR = 3\n")
    monkeypatch.chdir(source)
    code, document = envpack_json("init", "--from", "scaling:scaled", repository / "scaled", "--python", python)
    assert (code, document["inputs"], document["samples"]) == (0, ["rows"], 2), document
    more = {"data": [{"rows": [1, 2]}], "validation_data": [{"result": [3, 6]}], "envpack": {}}
    add_samples(repository / "scaled/envpack/smoke.json", more)
    code, document = envpack_json("init", "--from", "scaling:thousands", repository / "thousands", "--python", python)
    assert code == 0, document
    assert verified(envpack_json, repository) == {"scaled": (3, 3), "thousands": (1, 1)}
    (repository / "scaled/tests").mkdir()
    (repository / "scaled/tests/test_scaled.py").write_text(TESTS)
    config = repository / "thousands/config.pbtxt"
    config.write_text(re.sub(r'("result", data_type: TYPE_INT)64', r"\g<1>32", config.read_text()))
    code, document = envpack_json("test", "--repository", repository)
    assert code == 0, document


@pytest.mark.thorough
@pytest.mark.parametrize("python", ["3.6", "3.8"])
def test_hints_have_their_meaning_on_older_pythons(tmp_path, envpack_json, monkeypatch, python):
    source, repository = tmp_path / "source", tmp_path / "repository"
    source.mkdir()
    (source / "older.py").write_text(OLDER)
    monkeypatch.chdir(source)
    for name in ("shouted", "halves"):
        words = ("init", "--from", f"older:{name}", repository / name, "--python", need(python))
        code, document = envpack_json(*words)
        assert code == 0, document
    assert verified(envpack_json, repository) == {"shouted": (2, 2), "halves": (1, 1)}
