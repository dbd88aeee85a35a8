"""Repositories with models of other backends: what the server has is verified, and what it lacks is named."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.command_line import envpack
from tests.signing_keys import write_pair

TENSORS = """input { name: "X" data_type: TYPE_FP32 dims: [2] }
output { name: "Y" data_type: TYPE_FP32 dims: [2] }
"""
DOUBLE = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        read = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", array * 2)]) for array in read]
"""
CALLS = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.called(request)) for request in requests]

    def called(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "X")
        call = pb_utils.InferenceRequest(model_name="CALLED", requested_output_names=["Y"], inputs=[tensor])
        answer = call.exec()
        if answer.has_error():
            raise pb_utils.TritonModelException(answer.error().message())
        return answer.output_tensors()
"""
# As vLLM's: code of the backend that runs all of its models.
BACKEND_IN_PYTHON = DOUBLE


def ensemble(*models):
    tensors = ["X", *(f"T{number}" for number in range(1, len(models))), "Y"]
    steps = (
        f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "X" value: "{tensors[number]}" }}'
        f' output_map {{ key: "Y" value: "{tensors[number + 1]}" }} }}'
        for number, model in enumerate(models)
    )
    return f'platform: "ensemble"\n{TENSORS}ensemble_scheduling {{ step [ {", ".join(steps)} ] }}\n'


@pytest.fixture(scope="module")
def backends(tmp_path_factory):
    """A folder with a backend in C++ and one in Python."""
    folder = tmp_path_factory.mktemp("mixed") / "backends"
    (folder / "identity").mkdir(parents=True)
    (folder / "coded").mkdir()
    (folder / "coded/model.py").write_text(BACKEND_IN_PYTHON)
    source = Path(__file__).with_name("identity_backend.cc")
    library = folder / "identity/libtriton_identity.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return folder


@pytest.fixture
def repository(environment, tmp_path):
    parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n'
    configs = {
        "double": f'backend: "python"\n{TENSORS}{parameter}',
        "calls": f'backend: "python"\n{TENSORS}{parameter}',
        "same": f'backend: "identity"\n{TENSORS}',
        "coded": f'backend: "coded"\n{TENSORS}{parameter}',
        "network": f'platform: "onnxruntime_onnx"\n{TENSORS}',
        "both": ensemble("double", "same"),
        "half": ensemble("double", "network"),
        "outer": ensemble("half", "double"),
        "around": ensemble("calls"),
    }
    for name, config in configs.items():
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(config)
    (tmp_path / "models/double/1/model.py").write_text(DOUBLE)
    (tmp_path / "models/calls/1/model.py").write_text(CALLS.replace("CALLED", "network"))
    (tmp_path / "models/network/1/model.onnx").write_bytes(b"\x08\x07")
    return tmp_path / "models"


def checks_of(done):
    """The checks of each model that are no plain yes, by name: id, status and evidence."""
    return {
        model["name"]: [
            f"{check['id']} {check['status']}: {check['evidence']}"
            for check in model["checks"]
            if check["status"] not in ("ok", "warning", "skipped")
        ]
        for model in done.document["verdict"]["models"]
    }


@pytest.mark.thorough
def test_models_of_backends_that_the_server_has_are_verified_and_the_others_named(server, repository, backends):
    done = envpack("verify", "--repository", repository, "--set", f"backends={backends}", "--json")
    assert done.code == 8, done
    network = 'needs the backend "onnxruntime", which this server does not have'
    found = checks_of(done)
    (called,) = found.pop("calls")
    (around,) = found.pop("around")
    assert found == {
        "double": [],
        "same": [],
        "coded": [],
        "both": [],
        "network": ['load unchecked: not verified: this server has no backend "onnxruntime"'],
        "half": [f"load unchecked: not verified: its step network {network}"],
        "outer": [f"load unchecked: not verified: its step half {network}"],
    }
    for text in (called, around):
        why = 'it runs or calls network, and this server has no backend "onnxruntime"'
        assert text.startswith(f"infer unchecked: not verified: {why}; its answer: "), text
    verdict = done.document["verdict"]
    assert (verdict["ok"], verdict["answer"]) == (False, "yes as far as checked")
    assert {check["id"]: check["status"] for check in verdict["checks"]}["together"] == "ok"
    assert "4 of 9 models serve, 3 not verified, 2 not fully checked, nothing left behind" in done.err


def test_a_model_of_another_backend_and_an_ensemble_are_verified_by_name(server, repository, backends):
    by_name = envpack("verify", "--repository", repository, "--set", f"backends={backends}", "same", "both", "--json")
    assert (by_name.code, list(checks_of(by_name))) == (0, ["same", "double", "both"]), by_name.err
    missing = envpack("verify", "--repository", repository, "network", "--json")
    assert missing.code == 8, missing
    assert "0 of 1 models serve, 1 not verified" in missing.err


@pytest.mark.thorough
def test_a_server_is_verified_with_all_of_its_backends(server, repository, backends, tmp_path):
    """As in an image: the backend lies beside the server's Python backend."""
    home = tmp_path / "pytriton/tritonserver"
    shutil.copytree(server.executable.parents[1], home)
    shutil.copytree(backends / "identity", home / "backends/identity")
    (tmp_path / Path(server.library_path).name).symlink_to(server.library_path)
    done = envpack("verify", "--repository", repository, "--server", home, "same", "--json")
    assert (done.code, checks_of(done)) == (0, {"same": []}), done


@pytest.mark.thorough
def test_a_broken_model_of_another_backend_is_a_fault(server, repository, backends):
    shutil.rmtree(repository / "same/1")
    done = envpack("verify", "--repository", repository, "--set", f"backends={backends}", "same", "both", "--json")
    assert done.code == 1, done
    failures = {
        model["name"]: model["failure"]["kind"] for model in done.document["verdict"]["models"] if not model["ok"]
    }
    assert failures.keys() == {"same", "both"}


@pytest.mark.thorough
def test_a_signed_publication_has_models_of_every_backend(server, repository, tmp_path):
    shutil.rmtree(repository / "coded")  # its backend is in Python, and no part of a publication
    shutil.rmtree(repository / "same/1")
    (repository / "same/1").mkdir()  # object stores have no empty folders
    private, public = write_pair(tmp_path)
    url = f"file://{tmp_path}/published"
    sent = envpack("publish", url, "--repository", repository, "--sign", private, "--json")
    assert sent.code == 0, sent
    assert {"network/1/model.onnx", "network/.envpack-statement.json", "same/1/.envpack-keep"} <= set(
        sent.document["sent"]
    )
    verified = envpack("verify", url, "network", "half", "--require-signature", public, "--json")
    assert (verified.code, len(checks_of(verified)["half"])) == (8, 1), verified
    (tmp_path / "published/network/1/model.onnx").write_bytes(b"other")
    changed = envpack("verify", url, "double", "--require-signature", public, "--json")
    assert changed.code == 3, changed
    assert "network/1/model.onnx is not what was" in changed.err
