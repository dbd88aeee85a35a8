"""Every release answers to the load of a model whose backend it lacks in words that envpack verify knows."""

import pytest

from envpack.repository.model import open_model
from envpack.server.kserve import Client, RequestError
from envpack.server.process import ProcessRuntime
from envpack.settings.releases import find_release
from envpack.verification.loading import MissingBackends
from tests.cache import kept_cache
from tests.server.releases.conftest import IN_WHEELS
from tests.server.releases.wheels import server_of


@pytest.mark.thorough
def test_a_model_without_backend_is_known_by_the_answer_of_every_release(tmp_path):
    (tmp_path / "network/1").mkdir(parents=True)
    (tmp_path / "network/1/model.onnx").write_bytes(b"\x08\x07")
    (tmp_path / "network/config.pbtxt").write_text(
        'platform: "onnxruntime_onnx"\n'
        'input { name: "X" data_type: TYPE_FP32 dims: [1] }\noutput { name: "Y" data_type: TYPE_FP32 dims: [1] }\n'
    )
    model = open_model(tmp_path / "network", foreign=True)
    unknown = {}
    for name in IN_WHEELS:
        runtime = ProcessRuntime(server_of(find_release(name), kept_cache()))
        with runtime.start(tmp_path) as running, pytest.raises(RequestError) as refused:
            Client(running.url).load("network", timeout=30)
        if MissingBackends().verdict_on_load(model, refused.value.message) is None:
            unknown[name] = refused.value.message
    assert unknown == {}
