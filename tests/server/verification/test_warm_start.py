"""The verdict on models that start warm: how, and what if they cannot, hang, die or leave something."""

import shutil

import pytest

from envpack.server.choice import ServerSpec
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE, Settings
from envpack.verification.run import verify
from tests.cache import kept_cache
from tests.server.model_environments import ModelEnvironments

SPEC = ServerSpec(Settings(runtime="process"))
CONFIG = """backend: "python"
input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }} ]
instance_group [ {{ kind: KIND_CPU count: {count} }} ]
parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}
parameters {{ key: "ENVPACK_START" value {{ string_value: "warm" }} }}
"""
MODEL = """import os
import signal
import threading
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""
BLOCKED = """

class TritonPythonModel(TritonPythonModel):
    def initialize(self, args):
        time.sleep(600)
"""


@pytest.fixture(scope="module")
def stub(server):
    return ModelEnvironments(kept_cache()).stub(find_release(DEFAULT_RELEASE).python)


@pytest.fixture
def judged(stub, environment, tmp_path):
    """The verdict on a warm model with more code at its module level, or in place of the body of execute."""

    def judge(code="", body="", count=1, **options):
        folder = tmp_path / "m"
        (folder / "1").mkdir(parents=True)
        text = MODEL.replace("        return", f"        {body}\n        return") if body else MODEL
        (folder / "1/model.py").write_text(text + code)
        shutil.copy(stub, folder / stub.name)
        (folder / "config.pbtxt").write_text(CONFIG.format(count=count, environment=environment))
        verdict = verify(tmp_path, spec=SPEC.saying(**options))
        assert verdict.leftovers == ()
        return verdict

    return judge


def checked(verdict, check):
    return next(each for each in (*verdict.models[0].checks, *verdict.checks) if each.id == check)


def test_a_warm_model_is_fit_to_serve_and_leaves_nothing(judged):
    verdict = judged(count=3)
    assert verdict.ok, verdict.models[0].failure
    check = checked(verdict, "start")
    assert check.status == "ok"
    assert check.evidence.startswith("warm: 3 instances of the template, process ")
    assert verdict.models[0].stub.start == "warm"
    assert [phase.name for phase in verdict.models[0].phases] == ["configuration", "stub start", "initialize"]
    assert checked(verdict, "shutdown").status == "ok"


@pytest.mark.thorough
def test_a_model_that_cannot_start_warm_is_fit_to_serve_with_a_warning(judged):
    verdict = judged("threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n", count=2)
    assert verdict.ok, verdict.models[0].failure
    check = checked(verdict, "start")
    assert check.status == "warning"
    assert check.evidence.startswith("m_0_0, m_0_1 started cold: ")
    assert "thread" in check.evidence
    assert verdict.models[0].stub.start == "cold"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("time.sleep(600)\n", "<module>"),
        (BLOCKED, "initialize"),
    ],
    ids=["import", "initialize"],
)
def test_the_line_that_blocks_a_warm_load_is_named(judged, code, place):
    (model,) = judged(code, timeout=15).models  # until the line is reached, on a busy machine
    assert model.failure.kind == "load-timeout"
    assert any("/m/1/model.py:" in line and line.endswith(f" in {place}") for line in model.failure.details)


@pytest.mark.thorough
def test_the_line_that_blocks_a_request_is_named(judged):
    (model,) = judged(body="time.sleep(600)", timeout=10).models
    assert model.failure.kind == "inference-timeout"
    assert any(line.endswith(" in execute") for line in model.failure.details)


def test_a_warm_model_whose_process_is_replaced_is_not_fit_to_serve(judged):
    (model,) = judged(body="os.kill(os.getpid(), signal.SIGKILL)").models
    assert model.failure.kind in {"inference-failed", "stub-died"}
    assert "SIGKILL" in model.failure.reason
