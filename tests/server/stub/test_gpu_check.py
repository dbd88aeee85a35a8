"""The harness of ci/gpu-check.sh, with those of its checks that need no GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from envpack.server.tensors import Tensor
from envpack.support.errors import EnvpackError

PYTHON = "3.10"
CI = Path(__file__).parents[3] / "ci"


@pytest.fixture
def gpu(monkeypatch):
    """Its main module; the folder is no package of the project."""
    monkeypatch.syspath_prepend(str(CI))
    import gpu.__main__ as main

    yield main
    for name in [name for name in sys.modules if name.partition(".")[0] == "gpu"]:
        del sys.modules[name]


@pytest.fixture
def setup(gpu, servers):
    from gpu.environment import ModelSetup

    try:
        made = servers.model_environments
        return ModelSetup(made.environments(PYTHON)[0], made.stub(PYTHON))
    except EnvpackError as error:
        pytest.skip(str(error))


def test_checks_that_need_no_gpu_pass(gpu, setup, tmp_path, capfd):
    chosen = [check for check in gpu.CHECKS if check.devices == 0]
    tally = gpu.run(setup, chosen, 0, tmp_path)
    assert tally.counts == {"ok": len(chosen), "FAIL": 0, "skip": 0}
    assert capfd.readouterr().out == "".join(f"ok   {check.name}\n" for check in chosen)


def test_each_failure_stands_alone(gpu, setup, tmp_path, capfd):
    def wrong_type(site):
        site.infer("host", [Tensor("IN", "INT32", (1,), (1,))])

    def ends_the_server(site):
        site.server.stop(force=True)
        site.floats("host", [1])

    checks = [
        gpu.Check("wrong type", ("host",), wrong_type),
        gpu.Check("missing", ("nowhere",), wrong_type),
        gpu.Check("server ends", ("host",), ends_the_server),
        *(check for check in gpu.CHECKS if check.name == "model on the host"),
        gpu.Check("two devices", ("host",), wrong_type, devices=2),
    ]
    assert gpu.run(setup, checks, 1, tmp_path).counts == {"ok": 1, "FAIL": 3, "skip": 1}
    out = capfd.readouterr().out
    assert "FAIL wrong type: " in out
    assert "INT32" in out
    assert "FAIL missing: nowhere did not load: " in out
    assert "FAIL server ends: no response" in out
    assert "ok   model on the host\n" in out
    assert "skip two devices: 2 devices, here is 1\n" in out


def test_without_a_gpu_it_ends_with_3_and_one_line(gpu):
    from gpu.driver import NoGpuError, count_devices

    try:
        count_devices()
    except NoGpuError:
        done = subprocess.run(["bash", CI / "gpu-check.sh"], capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout.count("\n"), done.stderr) == (3, 1, "")
        assert done.stdout.startswith("no GPU: ")
    else:
        pytest.skip("there is a GPU")
