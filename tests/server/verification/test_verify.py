import signal
import socket
import subprocess
import sys
import time

import pytest

from envpack.errors import InputError, ServerError
from envpack.verification import VerifyOptions, verify


@pytest.fixture(scope="module")
def verdict(environment, faults, tmp_path_factory):
    """One server for the whole catalogue."""
    repository = tmp_path_factory.mktemp("repository")
    for broken in (faults.GOOD, *faults.FAULTS):
        faults.write_model(repository, broken, environment)
    (repository / "whole/1").mkdir(parents=True)
    (repository / "whole/config.pbtxt").write_text(faults.ENSEMBLE)
    return verify(repository)


@pytest.fixture
def good(environment, faults, tmp_path):
    faults.write_model(tmp_path, faults.GOOD, environment)
    return tmp_path


def of(verdict, name):
    return next(model for model in verdict.models if model.name == name)


def test_a_good_model_is_fit_to_serve(verdict):
    model = of(verdict, "good")
    assert model.ok, model.failure
    assert [check.id for check in model.checks] == ["load", "stub", "isolation", "infer", "formats", "expected"]
    assert model.python.startswith("3.10")
    assert model.numpy == "1.26.4"
    assert (model.samples.right, model.samples.sent, model.samples.noun) == (1, 2, "numbers")


def test_an_ensemble_is_loaded_after_its_members(verdict):
    names = [model.name for model in verdict.models]
    assert names.index("good") < names.index("whole")
    assert of(verdict, "whole").ok, of(verdict, "whole").failure


def test_every_broken_model_is_told_apart(verdict, faults):
    wrong = []
    for broken in faults.FAULTS:
        failure = of(verdict, broken.name).failure
        seen = (failure.kind, failure.reason, "\n".join(failure.details)) if failure else ("", "", "")
        if seen[0] != broken.kind or broken.says not in seen[1] or broken.details not in seen[2]:
            wrong.append((broken.name, seen))
    assert not wrong
    assert not verdict.ok


def test_one_good_model_within_five_seconds(good):
    started = time.monotonic()
    verdict = verify(good)
    assert verdict.ok, verdict.models
    assert verdict.release == "24.10"
    assert verdict.leftovers == ()
    assert verdict.to_json()["schema"] == 1
    assert verdict.verdict_seconds < 5 < 30 > time.monotonic() - started


def test_a_crash_while_answering_leaves_nothing(environment, faults, tmp_path):
    broken = next(fault for fault in faults.FAULTS if fault.name == "crashes_answering")
    faults.write_model(tmp_path, broken, environment)
    verdict = verify(tmp_path)
    assert verdict.models[0].failure.kind == "stub-died"
    assert verdict.leftovers == ()
    assert verdict.seconds < 12


TYPES = """backend: "python"
input [
  { name: "HALF" data_type: TYPE_FP16 dims: [ 2 ] }, { name: "TEXT" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "FLAG" data_type: TYPE_BOOL dims: [ 1 ] }, { name: "BIG" data_type: TYPE_UINT64 dims: [ 1, 1 ] }
]
output [
  { name: "HALF_OUT" data_type: TYPE_FP16 dims: [ 2 ] }, { name: "TEXT_OUT" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "FLAG_OUT" data_type: TYPE_BOOL dims: [ 1 ] }, { name: "BIG_OUT" data_type: TYPE_UINT64 dims: [ 1, 1 ] }
]
"""
ECHO = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(t.name() + "_OUT", t.as_numpy()) for t in request.inputs()])
            for request in requests
        ]
"""


def test_types_sequences_and_decoupled_models(environment, faults, tmp_path):
    echo = faults.Broken("types", ECHO, "", "")
    folder = faults.write_model(tmp_path, echo, environment)
    parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n'
    (folder / "config.pbtxt").write_text(TYPES + parameter)
    for name, extra in (
        ("sequence", "sequence_batching { }\n"),
        ("decoupled", "model_transaction_policy { decoupled: true }\n"),
    ):
        file = faults.write_model(tmp_path, faults.Broken(name, faults.DOUBLE, "", ""), environment) / "config.pbtxt"
        file.write_text(file.read_text() + extra)
    verdict = verify(tmp_path)
    assert verdict.ok, verdict.models
    infer = {model.name: check.evidence for model in verdict.models for check in model.checks if check.id == "infer"}
    assert "HALF_OUT FP16[2], TEXT_OUT BYTES[1], FLAG_OUT BOOL[1], BIG_OUT UINT64[1, 1]" in infer["types"]
    assert "OUT FP32[1, 1]" in infer["sequence"]
    assert "decoupled" in infer["decoupled"]


def test_a_packed_environment_is_cleaned_up_after_a_hang(environment, faults, tmp_path):
    repository = tmp_path / "repository"
    archive = tmp_path / "environment.tar"
    subprocess.run(["tar", "-C", environment, "-cf", archive, "."], check=True)
    faults.write_model(repository, faults.GOOD, archive)
    faults.write_model(repository, faults.HANGS, archive)
    good, hangs = verify(repository, options=VerifyOptions(load_timeout=8)).models
    assert good.ok, good.failure
    assert hangs.failure.kind == "load-timeout"


def test_a_model_that_hangs_is_given_up(environment, faults, tmp_path):
    faults.write_model(tmp_path, faults.HANGS, environment)
    (model,) = verify(tmp_path, options=VerifyOptions(load_timeout=5)).models
    assert model.failure.kind == faults.HANGS.kind
    assert faults.HANGS.says in model.failure.reason
    assert faults.HANGS.details in model.failure.details


def test_a_taken_port_is_named(good):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(ServerError, match=str(port)) as caught:
            verify(good, options=VerifyOptions(port=port))
    assert caught.value.kind == "port-taken"


def test_a_missing_server_is_named(good, tmp_path):
    with pytest.raises(ServerError) as caught:
        verify(good, options=VerifyOptions(server=tmp_path / "nowhere"))
    assert caught.value.kind == "server-missing"


def test_a_missing_model_is_named_before_any_server_starts(good):
    with pytest.raises(InputError) as caught:
        verify(good, ["absent"])
    assert caught.value.kind == "model-missing"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(environment, faults, tmp_path, number):
    faults.write_model(tmp_path, faults.HANGS, environment)
    code = f"from pathlib import Path; from envpack.verification import verify; verify(Path({str(tmp_path)!r}))"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as child:
        time.sleep(4)
        child.send_signal(number)
        child.communicate(timeout=40)
    assert child.returncode != 0
