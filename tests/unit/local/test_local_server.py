"""Models that run without a server: how they answer, how they reach each other, and how they are loaded and stopped."""

import json
import os
import threading
from dataclasses import replace

import pytest

from envpack.local import NOTHING, ModelFailed, local_server
from envpack.support.errors import InputError
from tests.waiting import soon

from .conftest import CONFIG, DECOUPLED, HEAD, numbers, request, tensor

ECHO_REST = "    return [out(request) for _, request in requests]\n"
TWO_OUTPUTS = CONFIG + 'output [ { name: "REST" data_type: TYPE_INT32 dims: [ -1 ] } ]\n'
# Sends as many responses as its input says, and then the end with the last one or alone.
COUNT = """
def execute(requests, stub):
    for number, request in requests:
        (count,) = ints(request.inputs[0].content)
        for n in range(count):
            stub.send(number, out(request, lambda _: [n]), last=request.id == "with the last" and n == count - 1)
        if request.id != "with the last":
            stub.send(number, last=True)
    return [0] * len(requests)
"""


def streamed(server, asked):
    return [(None if found is NOTHING else numbers(found), last) for found, last in server.stream(asked)]


def gone(pid):
    return soon(lambda: not os.path.exists(f"/proc/{pid}"))


# Requests


def test_a_request_reaches_the_model_as_it_is_and_its_answer_comes_back(repository, server):
    code = "def execute(requests, stub):\n    stub.log(repr([r for _, r in requests]))\n" + ECHO_REST
    repository.add("m", code)
    asked = request("m", 1, -2, id="one", correlation_id="s", flags=3, timeout=5, parameters='{"a":1}')
    assert numbers(server.infer(asked)) == [1, -2]
    (seen,) = repository.texts("info")
    for part in ("'IN'", "'INT32'", "[2]", "id='one'", "sequence='s'", "flags=3", "timeout=5", "'{\"a\":1}'"):
        assert part in seen
    assert "outputs=['OUT']" in seen
    assert "model='m', version=-1," in seen


def test_only_the_requested_outputs_are_returned(repository, server):
    code = """
def execute(requests, stub):
    (output,) = out(requests[0][1]).outputs
    return [Response([output, replace(output, name="REST")])]
"""
    repository.add("m", code, TWO_OUTPUTS)
    names = {
        wanted: [output.name for output in server.infer(request("m", 1, outputs=frozenset(wanted))).outputs]
        for wanted in ((), ("REST",), ("OUT",), ("OUT", "REST"))
    }
    assert names == {(): ["OUT", "REST"], ("REST",): ["REST"], ("OUT",): ["OUT"], ("OUT", "REST"): ["OUT", "REST"]}


def test_an_error_of_a_model_is_the_response_and_the_next_request_is_answered(repository, server):
    code = """
def execute(requests, stub):
    number = requests[0][1].inputs[0].content[0]
    if number == 1:
        raise ValueError("raised")
    return [Response(error="sent", code=3) if number == 2 else out(requests[0][1], parameters='{"p":1}')]
"""
    repository.add("m", code)
    assert server.infer(request("m", 1)).error == "raised"
    sent = server.infer(request("m", 2))
    assert (sent.error, sent.code, sent.outputs) == ("sent", 3, ())
    answer = server.infer(request("m", 3))
    assert (numbers(answer), answer.parameters) == ([3], '{"p":1}')


def test_what_a_server_rejects_does_not_reach_the_model(repository, server):
    repository.add("m", "def execute(requests, stub):\n    stub.log('asked')\n" + ECHO_REST)
    with pytest.raises(ModelFailed, match="unexpected inference output 'NONE' for model 'm'"):
        server.infer(request("m", 1, outputs=frozenset({"NONE"})))
    assert repository.texts() == []


def test_a_decoupled_model_sends_any_number_of_responses(repository, server):
    repository.add("m", COUNT, CONFIG + DECOUPLED)
    assert streamed(server, request("m", 2)) == [([0], False), ([1], False), (None, True)]
    assert streamed(server, request("m", 2, id="with the last")) == [([0], False), ([1], True)]
    assert streamed(server, request("m", 0)) == [(None, True)]
    assert numbers(server.infer(request("m", 1))) == [0]
    for count in (0, 2):
        with pytest.raises(ModelFailed, match=f"^expected a single response, got {count}$"):
            server.infer(request("m", count))
    assert not server.model("m")._open, "an answered request must be forgotten"


def test_requests_of_one_call_are_answered_in_order(repository, server):
    repository.add("m", "def execute(requests, stub):\n    stub.log(str(len(requests)))\n" + ECHO_REST)
    model = server.model("m")
    answers = model.infer_batch([request("m", n) for n in (7, 8, 9)])
    assert [[numbers(one) for one in each] for each in answers] == [[[7]], [[8]], [[9]]]
    assert repository.texts() == ["3"]
    assert not model._open, "an answered request must be forgotten"
    with pytest.raises(ModelFailed, match="unexpected inference output"):
        model.infer_batch([request("m", 1), request("m", 1, outputs=frozenset({"NONE"}))])
    assert not model._open


def test_a_rescheduled_request_is_executed_again(repository, server):
    code = """
seen = []
def execute(requests, stub):
    seen.append(len(requests))
    stub.log(str(len(requests)))
    return [2 if n and len(seen) == 1 else out(request) for n, (_, request) in enumerate(requests)]
"""
    repository.add("m", code)
    answers = server.model("m").infer_batch([request("m", n) for n in (7, 8, 9)])
    assert [[numbers(one) for one in each] for each in answers] == [[[7]], [[8]], [[9]]]
    assert repository.texts() == ["3", "2"]


SLOW = """
def execute(requests, stub):
    (number, request), = requests
    stub.send(number, out(request))
    while not stub.ask("IS_CANCELLED", number).number():
        time.sleep(0.01)
    stub.log("cancelled")
    stub.send(number, last=True)
    return [0]
"""


def test_a_request_is_cancelled_if_nobody_waits_for_its_responses(repository, server):
    repository.add("m", SLOW, CONFIG + DECOUPLED)
    responses = server.stream(request("m", 1))
    assert numbers(next(responses)[0]) == [1]
    responses.close()  # waits for the model
    assert repository.texts() == ["cancelled"]


def test_all_requests_can_be_cancelled(repository, server):
    repository.add("m", SLOW, CONFIG + DECOUPLED)
    found = []
    for response, last in server.stream(request("m", 1)):
        found.append((response is NOTHING, last))
        server.cancel()
    assert found == [(False, False), (True, True)]


def test_a_request_that_nobody_knows_any_more_counts_as_cancelled(repository, server):
    code = """
def execute(requests, stub):
    (number, request), = requests
    stub.log(str([stub.ask("IS_CANCELLED", each).number() for each in (99, number)]))
    stub.send(99, out(request), last=True)
"""
    repository.add("m", code + ECHO_REST)
    assert numbers(server.infer(request("m", 1))) == [1]
    assert repository.texts() == ["[1, 0]"]


def test_a_model_with_sequences_gets_its_control_inputs(repository, server):
    config = CONFIG.replace("-1", "1") + "max_batch_size: 1\n"
    config += """sequence_batching { control_input [
      { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }"""
    code = "def execute(requests, stub):\n    stub.log(str([t.name for t in requests[0][1].inputs]))\n"
    repository.add("m", f"{code}    return [Response()]\n", config)
    asked = replace(request("m"), inputs=(tensor("IN", 1, shape=(1, 1)),), correlation_id=4, flags=1)
    assert server.infer(asked).error is None
    assert repository.texts() == ["['START', 'IN']"]


# Models that ask others


ASK = """
import json

def execute(requests, stub):
    (_, request), = requests
    name, _, rest = json.loads(request.parameters)["ask"].partition(" ")
    try:
        other = replace(request, model=name, version=5 if "version" in rest else -1)
        content = stub.ask("INFER", "decoupled" in rest, other)
        stream, last, first = content.number(), bool(content.number()), content.response()
        found = [(last, first.error or ints(first.outputs[0].content))]
        if "cancel" in rest:
            stub.ask("CANCEL_STREAM", stream)
        while not found[-1][0]:
            of, last, next_one = stub.next_of_stream()
            assert of == stream
            found.append((last, next_one.error or [len(t.content) for t in next_one.outputs]))
        if stream:
            stub.ask("END_STREAM", stream)
        stub.log(json.dumps(found))
    except Exception as error:
        stub.log(str(error))
    return [out(request)]
"""


def ask(server, repository, what, *content):
    server.infer(request("asks", *content, parameters=json.dumps({"ask": what})))
    return repository.texts("info")[-1]


def test_a_model_asks_another_one(repository, server):
    repository.add("asks", ASK)
    repository.add(
        "m", "def execute(requests, stub):\n    return [out(r, lambda ns: [2 * n for n in ns]) for _, r in requests]\n"
    )
    repository.add("fails", "def execute(requests, stub):\n    raise ValueError('boom')\n")
    repository.add("broken", "raise ValueError('not loaded')\n")
    assert ask(server, repository, "m", 4) == "[[true, [8]]]"
    assert ask(server, repository, "fails", 4) == '[[true, "boom"]]'
    prefix = (
        "Model {0} - Error when running inference: Failed for execute the inference request. Model '{0}' is not ready."
    )
    for name in ("none", "broken", "m version"):
        assert ask(server, repository, name, 4) == prefix.format(name.split()[0])
    assert repository.texts("error") == ["Request for unknown model: 'none' is not found", "not loaded"]


def test_a_model_asks_a_decoupled_one(repository, server):
    repository.add("asks", ASK)
    repository.add("m", COUNT, CONFIG + DECOUPLED)
    assert ask(server, repository, "m decoupled", 2) == "[[false, [0]], [false, [4]], [true, []]]"
    text = ask(server, repository, "m", 2)
    assert text.startswith("Model m - Error when running inference: Model m is using the decoupled. ")
    assert "Please use 'decoupled=True' argument" in text


@pytest.mark.parametrize(("release", "last"), [(2503, "true"), (2504, "false")])
def test_a_stream_that_begins_with_an_error_goes_on_since_25_04(repository, release, last):
    repository.add("asks", ASK.replace("while not", "while False and not"))
    code = "def execute(requests, stub):\n    n = requests[0][0]\n    stub.send(n, Response(error='first'))\n"
    repository.add("m", code + "    stub.send(n, out(requests[0][1]), last=True)\n    return [0]\n", CONFIG + DECOUPLED)
    with repository.server(release) as server:
        assert ask(server, repository, "m decoupled", 2) == f'[[{last}, "first"]]'


def test_a_model_can_cancel_the_request_that_a_stream_answers(repository, server):
    repository.add("asks", ASK)
    repository.add("m", SLOW, CONFIG + DECOUPLED)
    assert ask(server, repository, "m decoupled cancel", 2) == "[[false, [2]], [true, []]]"
    assert "cancelled" in repository.texts("info")
    assert not server._open_streams


METRICS = (
    """
def initialize(arguments, decoupled, instance):
    pass

def execute(requests, stub):
    family = stub.ask("CREATE_METRIC_FAMILY", "f", "a family", 0).number()
    metric = stub.ask("CREATE_METRIC", family, '{"a": "b"}', False, 0).number()
    stub.ask("CHANGE_METRIC", metric, 0, 2.5)
    values = [stub.ask("METRIC_VALUE", metric).fraction()]
    other = stub.ask("CREATE_METRIC_FAMILY", "h", "x", 2).number()
    histogram = stub.ask("CREATE_METRIC", other, "null", True, [1.0, 2.0]).number()
    stub.ask("CHANGE_METRIC", histogram, 2, 1.5)
    gone = stub.ask("CREATE_METRIC", family, '{"a": "c"}', False, 0).number()
    stub.ask("DELETE_METRIC", gone)
    stub.ask("DELETE_METRIC_FAMILY", family)
    for question in (("CREATE_METRIC", family, "null", False, 0), ("METRIC_VALUE", gone)):
        try:
            stub.ask(*question)
        except Exception as error:
            values.append(type(error).__name__)
    stub.log(str(values))
"""
    + ECHO_REST
)


def test_metrics_of_models_are_shown_as_by_a_server(repository, server):
    repository.add("m", METRICS)
    server.infer(request("m", 1))
    assert repository.texts() == ["[2.5, 'FailedError', 'FailedError']"]
    lines = server.metrics.lines()
    assert [line for line in lines if not line.startswith("#")] == [
        'f{a="b"} 2.5',
        "h_count 1",
        "h_sum 1.5",
        'h_bucket{le="1"} 0',
        'h_bucket{le="2"} 1',
        'h_bucket{le="+Inf"} 1',
    ]


# Loading


MANAGE = """
import json

def execute(requests, stub):
    (_, request), = requests
    for kind, *values in json.loads(request.parameters)["do"]:
        try:
            content = stub.ask(kind, *values)
            stub.log(f"{kind} {content.number() if kind == 'IS_MODEL_READY' else ''}".strip())
        except Exception as error:
            stub.log(str(error).strip())
    return [out(request)]
"""
TELLS = "def initialize(arguments, *_):\n    global text\n    text = WORD + arguments['model_version']\n"
TELLS += "def execute(requests, stub):\n    stub.log(text)\n" + ECHO_REST


def do(server, repository, *orders):
    before = len(repository.texts("info"))
    server.infer(request("manages", 1, parameters=json.dumps({"do": orders})))
    return repository.texts("info")[before:]


def answers_of(server, repository, name="m"):
    server.infer(request(name, 1))
    return repository.texts("info")[-1]


def test_a_model_loads_and_unloads_others(repository, server):
    repository.add("manages", MANAGE)
    repository.add("m", f"WORD = 'old'\n{TELLS}")
    ready = ["IS_MODEL_READY", "m"]
    load = ["LOAD_MODEL", "m", "", {}]
    assert do(server, repository, ready, load, ready) == ["IS_MODEL_READY 0", "LOAD_MODEL", "IS_MODEL_READY 1"]
    pid = server.model("m").process.pid
    assert do(server, repository, load) == ["LOAD_MODEL"]
    assert server.model("m").process.pid == pid, "nothing has changed, so it is not loaded again"
    repository.add("m", f"WORD = 'newer'\n{TELLS}")
    do(server, repository, load)
    assert server.model("m").process.pid != pid
    assert gone(pid)
    assert answers_of(server, repository) == "newer1"
    pid = server.model("m").process.pid
    assert do(server, repository, ["UNLOAD_MODEL", "m"], ready) == ["UNLOAD_MODEL", "IS_MODEL_READY 0"]
    assert gone(pid)
    assert do(server, repository, ["UNLOAD_MODEL", "m"]) == ["UNLOAD_MODEL"]  # it does not run


def test_a_model_may_give_another_configuration_and_files(repository, server):
    repository.add("manages", MANAGE)
    repository.add("m", f"WORD = 'own'\n{TELLS}")
    config = json.dumps({"backend": "python", "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}]})
    assert do(server, repository, ["LOAD_MODEL", "m", config, {}]) == ["LOAD_MODEL"]
    assert list(server.model("m").config.input[0].dims) == [1]
    files = {"file:4/model.py": HEAD + f"WORD = 'given'\n{TELLS}"}
    assert do(server, repository, ["LOAD_MODEL", "m", config, files]) == ["LOAD_MODEL"]
    assert answers_of(server, repository) == "given4"
    folder = server._models["m"].model._source.folder
    assert folder.name == "m"
    assert do(server, repository, ["LOAD_MODEL", "m", "", {}]) == ["LOAD_MODEL"]
    assert answers_of(server, repository) == "own1"
    assert soon(lambda: not folder.exists()), "what was given must be removed with the model"
    assert do(server, repository, ["LOAD_MODEL", "n", config, {}]) == [
        "failed to load 'n', failed to poll from model repository"
    ]


def test_a_model_that_cannot_be_loaded_leaves_the_one_that_runs(repository, server):
    repository.add("manages", MANAGE)
    repository.add("m", f"WORD = 'old'\n{TELLS}")
    assert answers_of(server, repository) == "old1"
    repository.add("m", "raise ValueError('wrong')", version="2")
    reason = "version 2 is at UNAVAILABLE state: Internal: wrong;"
    assert do(server, repository, ["LOAD_MODEL", "m", "", {}]) == [f"load failed for model 'm': {reason}"]
    assert answers_of(server, repository) == "old1"
    refused = "failed to load 'none', failed to poll from model repository"
    assert do(server, repository, ["LOAD_MODEL", "none", "", {}]) == [refused]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("bad-config", "failed to load 'm', failed to poll from model repository"),
        (
            "model-without-code",
            "load failed for model 'm': at least one version must be available under the version policy",
        ),
    ],
)
def test_a_model_whose_files_are_wrong_is_refused_as_by_a_server(repository, kind, says):
    def find(name, override):
        if name == "m":
            raise InputError("wrong files", kind=kind, hint="correct them")
        return source(name, override)

    source, repository.source = repository.source, find
    repository.add("manages", MANAGE)
    with repository.server() as server:
        (text,) = do(server, repository, ["LOAD_MODEL", "m", "", {}])
    assert text.startswith(says)
    assert repository.texts("error") == ["wrong files (correct them)"]


# Starting and stopping


def test_a_prepared_model_starts_at_once_and_is_used_once(repository, server):
    repository.add("m", f"WORD = 'x'\n{TELLS}")
    server.prepare("m")
    server.prepare("m")
    (begun,) = server._running
    assert server.model("m") is begun
    server.prepare("m")
    assert list(server._running) == [begun]
    server.prepare("none")  # reported by its first use
    with pytest.raises(ModelFailed, match="^Request for unknown model: 'none' is not found$"):
        server.model("none")


def test_what_was_prepared_ends_with_the_server(repository):
    repository.add("m")
    with repository.server() as server:
        server.prepare("m")
        (begun,) = server._running
        pid = begun.process.pid
    assert not os.path.exists(f"/proc/{pid}")


def test_a_forgotten_model_is_found_anew(repository, server):
    repository.add("m", f"WORD = 'x'\n{TELLS}")
    answers_of(server, repository)
    pid = server.model("m").process.pid
    repository.add("m", f"WORD = 'y'\n{TELLS}", version="2")
    server.unload("m")
    assert not os.path.exists(f"/proc/{pid}")
    assert answers_of(server, repository) == "x1", "an unloaded model is what its name stood for"
    server.forget("m")
    assert answers_of(server, repository) == "y2"
    server.forget("m")
    server.prepare("m")
    (begun,) = [model for model in server._running if model.process.peak_memory()]
    server.forget("m")
    assert not os.path.exists(f"/proc/{begun.process.pid}")
    server.forget("none")


def test_a_model_that_cannot_be_loaded_is_tried_again_by_the_next_use(repository, server):
    repository.add("m", "raise ValueError('wrong')")
    with pytest.raises(ModelFailed, match="wrong"):
        server.model("m")
    (failed,) = server._running
    assert not os.path.exists(f"/proc/{failed.process.pid}")
    repository.add("m", f"WORD = 'x'\n{TELLS}")
    assert answers_of(server, repository) == "x1"


def test_two_threads_share_one_load(repository, server):
    repository.add("m", "def initialize(*_):\n    time.sleep(0.2)\n")
    found = []
    threads = [threading.Thread(target=lambda: found.append(server.model("m"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(server._running) == 1


FOREVER = """
def execute(requests, stub):
    stub.log("runs")
    (number, request), = requests
    while PATIENT or not stub.ask("IS_CANCELLED", number).number():
        time.sleep(0.01)
    stub.send(number, last=True)
    return [0]
def finalize(stub):
    stub.log("finalized")
"""


@pytest.mark.parametrize("patient", [False, True])
def test_an_interruption_cancels_requests_and_ends_models_that_do_not_notice(repository, patient, monkeypatch):
    monkeypatch.setattr(local_server, "_GRACE_SECONDS", 0.3 if patient else 60)
    repository.add("m", f"PATIENT = {patient}\n{FOREVER}", CONFIG + DECOUPLED)
    ended = []
    with pytest.raises(KeyboardInterrupt), repository.server() as server:
        thread = threading.Thread(target=lambda: ended.extend(server.stream(request("m", 1))))
        thread.start()
        assert soon(repository.texts)
        pid = server.model("m").process.pid
        raise KeyboardInterrupt
    thread.join()
    assert not os.path.exists(f"/proc/{pid}")
    assert repository.texts("info") == (["runs"] if patient else ["runs", "finalized"])
    ((response, last),) = ended
    assert last
    assert (response.error is not None) == patient


def test_an_error_of_the_caller_lets_models_finish(repository):
    repository.add("m", "def finalize(stub):\n    stub.log('finalized')\n")
    with pytest.raises(ValueError, match="caller"), repository.server() as server:
        server.model("m")
        raise ValueError("caller")
    assert repository.texts() == ["finalized"]
