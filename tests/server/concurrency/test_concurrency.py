"""Models that are right for one client and wrong for many are refused, and their right twins accepted."""

import pytest

from envpack.server.choice import ServerSpec
from envpack.settings.table import Settings
from envpack.verification.run import verify
from tests.server.concurrency.models import BATCHES, PAIRS, Pair, config_file, model_file
from tests.server.verification.conftest import environment, server  # noqa: F401 - fixtures

NAMED = """
def execute(self, requests):
    wanted = [{}.requested_output_names() for request in requests]
    outputs = [[pb_utils.Tensor(name, given(request)) for name in names] for request, names in zip(requests, wanted)]
    return [pb_utils.InferenceResponse(tensors) for tensors in outputs]
"""
TWO = """input [ { name: "X" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 3 ] }, { name: "Z" data_type: TYPE_FP32 dims: [ 3 ] } ]
"""
PAIRS["outputs_of_another_request"] = Pair(NAMED.format("requests[0]"), NAMED.format("request"), BATCHES, TWO)
GATE = {"one_response_for_all", "equal_parts", "shared_buffer", "senders_in_another_order"}
NAMES = [pytest.param(name, marks=[] if name in GATE else [pytest.mark.thorough]) for name in PAIRS]
PROCESS = ServerSpec(Settings(runtime="process", timeout=30))  # some of the wrong models never answer


@pytest.fixture(scope="module")
def verdicts(request, environment, tmp_path_factory):  # noqa: F811
    """The verdict on every model that is tested, by name; one server for all."""
    repository = tmp_path_factory.mktemp("repository")
    tested = {item.callspec.params["name"] for item in request.session.items if item.path == request.path}
    for name, pair in ((name, PAIRS[name]) for name in tested):
        for kind in ("wrong", "right"):
            folder = repository / f"{name}_{kind}"
            (folder / "1").mkdir(parents=True)
            (folder / "1/model.py").write_text(model_file(getattr(pair, kind)))
            (folder / "config.pbtxt").write_text(config_file(pair, environment))
    return {model.name: model for model in verify(repository, spec=PROCESS).models}


def concurrency(verdict):
    return next((check for check in verdict.checks if check.id == "concurrency"), None)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_wrong_for_many_clients_is_refused_with_the_cause(verdicts, name):
    verdict = verdicts[f"{name}_wrong"]
    assert [check.id for check in verdict.checks if not check.ok] == ["concurrency"]
    assert (verdict.ok, verdict.failure.kind) == (False, "wrong-together")
    assert PAIRS[name].says in verdict.failure.reason


@pytest.mark.parametrize("name", NAMES)
def test_its_right_twin_is_accepted(verdicts, name):
    verdict = verdicts[f"{name}_right"]
    assert verdict.ok, verdict.failure
    assert concurrency(verdict).status == "ok", concurrency(verdict)


@pytest.mark.parametrize("name", [name for name in NAMES if "dynamic_batching" in PAIRS[name.values[0]].config])
def test_batches_are_seen_to_form(verdicts, name):
    assert "batches of" in concurrency(verdicts[f"{name}_right"]).evidence
