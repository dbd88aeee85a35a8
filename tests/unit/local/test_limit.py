"""A model that takes too long: its process is ended, and the error says what has come and what is missing."""

import time

import pytest

from envpack.local import connection, local_model
from envpack.local.connection import Limit
from envpack.local.model_process import ModelFailed
from envpack.local.values import NOTHING

from .conftest import CONFIG, DECOUPLED, numbers, request

SECONDS = 2.0  # enough for the start of a process on a busy machine
FINAL = "without the final flag: send the last response, or nothing, with flags="
HANG = "    time.sleep(600)\n"
# The code of a model that hangs while it is loaded, and what the error says.
LOADS = {
    "complete": ("def complete(config):\n" + HANG, "passed while the configuration was completed"),
    "initialize": ("def initialize(*_):\n" + HANG, "passed while initialize() was running"),
}
# The code of execute(), the configuration before that of tensors, how many responses come, and what the error says.
REQUESTS = {
    "execute hangs": (HANG, "", 0, "passed, and execute() was running; 0 responses came;"),
    "nothing is sent": ("    return [0]\n", DECOUPLED, 0, f"and execute() had returned; 0 responses came {FINAL}"),
    "no final flag": (
        "    stub.send(requests[0][0], out(requests[0][1]))\n    return [0]\n",
        DECOUPLED,
        1,
        f"and execute() had returned; 1 response came {FINAL}",
    ),
    "no return after the final flag": (
        "    stub.send(requests[0][0], out(requests[0][1]), last=True)\n" + HANG,
        DECOUPLED,
        1,
        "and execute() was running; 1 response came; ",
    ),
    "asks itself": (
        "    stub.ask('INFER', 0, requests[0][1])\n",
        "",
        0,
        # Of either request, which end together.
        ", and its request to model 'm' had no final response; 0 responses came; a model that waits for itself needs",
    ),
}


def failure(server):
    """The responses of the model, and the error that they end with."""
    found = []
    with pytest.raises(ModelFailed) as raised:
        found.extend(response for response, _ in server.stream(request("m", 1)) if response is not NOTHING)
        raise ModelFailed(found.pop().error)
    return found, raised.value.text


@pytest.mark.parametrize("name", LOADS)
def test_a_load_has_a_limit(repository, name):
    code, says = LOADS[name]
    repository.add("m", code)
    with repository.server(timeout=SECONDS) as server, pytest.raises(ModelFailed) as raised:
        server.model("m")
    assert raised.value.text.startswith(f"the process of 'm' was ended: more than {SECONDS:g} s {says}")
    assert raised.value.text.endswith("; --timeout, in pytest --envpack-timeout, allows more time")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_has_a_limit_and_what_came_is_not_lost(repository, name):
    body, before, count, says = REQUESTS[name]
    repository.add("m", "def execute(requests, stub):\n" + body, before + CONFIG)
    with repository.server(timeout=SECONDS) as server:
        responses, text = failure(server)
        assert failure(server) == ([], text)  # at once
    assert [numbers(response) for response in responses] == [[1]] * count
    assert text.startswith(f"the process of 'm' was ended: more than {SECONDS:g} s passed, and ")
    assert says in text
    assert text.endswith("see `envpack test` and `envpack dev`" if name == "asks itself" else "allows more time")


def test_models_that_wait_for_each_other_are_named_before_the_limit(repository):
    for name, other in (("one", "two"), ("two", "three"), ("three", "one")):
        code = f"def execute(requests, stub):\n    stub.ask('INFER', 0, replace(requests[0][1], model='{other}'))\n"
        repository.add(name, code)
    with repository.server(timeout=1) as server, pytest.raises(ModelFailed):
        raise ModelFailed(next(server.stream(request("one", 1)))[0].error)
    warnings = [line.text for line in repository.logged if line.level == "warning"]
    assert warnings == ["'three' asks 'one', which waits for it: neither can answer in execute()"]


def test_a_stream_without_end_has_a_limit_of_responses(repository, monkeypatch):
    monkeypatch.setattr(local_model, "_MOST_RESPONSES", 5)
    body = "    while True:\n        stub.send(requests[0][0], out(requests[0][1]))\n"
    repository.add("m", "def execute(requests, stub):\n" + body, DECOUPLED + CONFIG)
    with repository.server() as server:
        responses, text = failure(server)
    assert len(responses) >= 6
    assert f"responses came {FINAL}" in text


def test_as_many_responses_as_the_limit_are_not_too_many(repository, monkeypatch, tmp_path):
    monkeypatch.setattr(local_model, "_MOST_RESPONSES", 2)
    body = f"""
    for _ in range(2):
        stub.send(requests[0][0], out(requests[0][1]))
    while not os.path.exists({str(tmp_path / "go")!r}):
        time.sleep(0.001)
    stub.send(requests[0][0], last=True)
    return [0]
"""
    repository.add("m", "def execute(requests, stub):" + body, DECOUPLED + CONFIG)
    with repository.server() as server:
        responses = server.stream(request("m", 1))
        assert [numbers(next(responses)[0]) for _ in range(2)] == [[1], [1]]
        (tmp_path / "go").touch()
        assert [(response, is_last) for response, is_last in responses] == [(NOTHING, True)]


def test_the_clock_stands_still_while_an_environment_is_made():
    found = Limit(5)
    before = found.now()
    with found.stopped(), found.stopped():
        still = found.now()
        assert found.now() == still
        time.sleep(0.01)
        assert found.now() == still
    assert before <= still <= found.now() < still + 0.01


def test_a_wait_that_is_stopped_goes_on_afterwards(monkeypatch):
    monkeypatch.setattr(connection, "_SLICE", 0.01)
    found, waited = Limit(0.02), []

    def attempt(seconds):
        waited.append(seconds)
        time.sleep(seconds)
        return len(waited) > 5

    with found.stopped():
        assert found.wait(found.end(), attempt)
    assert len(waited) == 6
    assert not found.wait(found.end(), time.sleep)
