"""The probe of `--gpu`, on a server without a GPU: it must not mistake host memory for GPU memory.

A module that is called torch and keeps its tensors in host memory says that there is a GPU. What only a real one can
show is not tested here; docs/explanation/verification.md says so.
"""

import pytest

from envpack.repository.model import open_model
from envpack.server.kserve import Client
from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime
from envpack.verification.gpu import PEER, PROBE, run_probe, write_probe
from tests.faults.repositories.running import Catalogue, build_kit

TORCH = """import numpy

float32 = numpy.float32


class cuda:
    @staticmethod
    def is_available():
        return {available}


def arange(count, dtype, device):
    assert device == "cuda"
    return numpy.arange(count, dtype=dtype)
"""


@pytest.fixture(scope="module")
def kit(server, tmp_path_factory):
    return build_kit(tmp_path_factory.mktemp("kit"))


@pytest.fixture
def check(kit, tmp_path):
    """Serves the probe as `--gpu` does, but on the processor; returns what is found."""

    def probed(*, available):
        models, probe = tmp_path / "models", tmp_path / "probe"
        probe.mkdir()
        like = open_model(Catalogue((), kit, tmp_path).good_model(models / "good"))
        write_probe(probe, like, str(like.environment))
        for name in (PROBE, PEER):
            (probe / name / "1/torch.py").write_text(TORCH.format(available=available))
            config = probe / name / "config.pbtxt"
            assert "KIND_GPU" in config.read_text()
            config.write_text(config.read_text().replace("KIND_GPU", "KIND_CPU"))
        with ProcessRuntime(find_server()).start(models, probe) as server:
            client = Client(server.url, timeout=30)
            found = run_probe(client, like, 60)
            assert "READY" not in {entry.state for entry in client.index()}
        return found

    return probed


@pytest.mark.thorough
def test_a_tensor_in_host_memory_fails(check):
    found = check(available=True)
    assert (found.id, found.status) == ("gpu-tensors", "failed")
    assert "a GPU tensor of another model arrived in host memory" in found.evidence
    assert "nvidia-smi" in found.fix


@pytest.mark.thorough
def test_a_library_that_finds_no_gpu_fails(check):
    found = check(available=False)
    assert (found.id, found.status) == ("gpu-tensors", "failed")
    assert "PyTorch finds no GPU" in found.evidence
