"""Models that run without a server: how they answer, and how they reach each other."""

import json
from dataclasses import replace

import pytest

from envpack.local.model_process import ModelFailed
from envpack.local.values import NOTHING
from envpack.support.errors import InputError

from .conftest import CONFIG, DECOUPLED, ECHO, infer, numbers, request, tensor

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


# Requests


def test_a_request_reaches_the_model_as_it_is_and_its_answer_comes_back(repository, server):
    code = "def execute(requests, stub):\n    stub.log(repr([r for _, r in requests]))\n" + ECHO_REST
    repository.add("m", code)
    asked = request("m", 1, -2, id="one", correlation_id="s", flags=3, timeout=5, parameters='{"a":1}')
    assert numbers(infer(server, asked)) == [1, -2]
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
        wanted: [output.name for output in infer(server, request("m", 1, outputs=frozenset(wanted))).outputs]
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
    assert infer(server, request("m", 1)).error == "raised"
    sent = infer(server, request("m", 2))
    assert (sent.error, sent.code, sent.outputs) == ("sent", 3, ())
    answer = infer(server, request("m", 3))
    assert (numbers(answer), answer.parameters) == ([3], '{"p":1}')


def test_what_a_server_rejects_does_not_reach_the_model(repository, server):
    repository.add("m", "def execute(requests, stub):\n    stub.log('asked')\n" + ECHO_REST)
    with pytest.raises(ModelFailed, match="the model has no output 'NONE'"):
        infer(server, request("m", 1, outputs=frozenset({"NONE"})))
    assert repository.texts() == []


def test_a_decoupled_model_sends_any_number_of_responses(repository, server):
    repository.add("m", COUNT, CONFIG + DECOUPLED)
    assert streamed(server, request("m", 2)) == [([0], False), ([1], False), (None, True)]
    assert streamed(server, request("m", 2, id="with the last")) == [([0], False), ([1], True)]
    assert streamed(server, request("m", 0)) == [(None, True)]
    assert numbers(infer(server, request("m", 1))) == [0]
    for count in (0, 2):
        with pytest.raises(ModelFailed, match=f"^expected a single response, got {count}$"):
            infer(server, request("m", count))
    assert not server.model("m")._open, "an answered request must be forgotten"


def test_a_request_whose_model_ends_after_execute_is_an_error(repository, server):
    code = (
        "def execute(requests, stub):\n    import threading\n    threading.Timer(0.05, lambda: os._exit(3)).start()\n"
    )
    repository.add("m", f"{code}    return [0]\n", CONFIG + DECOUPLED)
    ((response, last),) = server.stream(request("m", 1))
    assert (response.error, last) == ("the process of 'm' ended with status 3 while it had requests to answer", True)


JOINS = "max_batch_size: 4 dynamic_batching { }\n" + CONFIG


def batch(*values):
    return [replace(request("m"), inputs=(tensor("IN", *value, shape=(1, len(value))),)) for value in values]


def test_requests_that_wait_together_are_answered_in_order(repository, server):
    repository.add("m", "def execute(requests, stub):\n    stub.log(str(len(requests)))\n" + ECHO_REST, JOINS)
    model = server.model("m")
    answers = model.infer_batch(batch([7], [8], [9], [1, 2], [3]))
    assert [[numbers(one) for one in each] for each in answers] == [[[7]], [[8]], [[9]], [[1, 2]], [[3]]]
    assert repository.texts() == ["3", "1", "1"]
    assert not model._open, "an answered request must be forgotten"
    refused = replace(batch([1])[0], outputs=frozenset({"NONE"}))
    first, (second,), third = model.infer_batch([*batch([1]), refused, *batch([2])])
    assert (numbers(*first), numbers(*third)) == ([1], [2])
    assert second.error == "refused before the model saw it: the model has no output 'NONE'"
    assert not model._open


def test_a_rescheduled_request_needs_a_server(repository, server):
    repository.add("m", "def execute(requests, stub):\n    return [2]\n")
    assert infer(server, request("m", 1)).error.startswith("the model rescheduled the request, which needs iterative")


def test_a_model_that_is_being_stopped_takes_no_more_requests(repository, server):
    repository.add("m")
    model = server.model("m")
    server.unload("m")
    with pytest.raises(ModelFailed, match="^model 'm' is being unloaded$"):
        list(model.stream(request("m", 1)))
    with pytest.raises(ModelFailed, match="^model 'm' is being unloaded$"):
        model.infer_batch([request("m", 1)])


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


def test_models_that_cannot_be_stopped_are_killed(server, monkeypatch):
    killed = []

    def stop():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(server, "stop", stop)
        patch.setattr(server, "kill", lambda: killed.append(server))
        with pytest.raises(KeyboardInterrupt):
            server.__exit__(None, None, None)
    assert killed == [server]


def test_a_request_that_nobody_knows_any_more_counts_as_cancelled(repository, server):
    code = """
def execute(requests, stub):
    (number, request), = requests
    stub.log(str([stub.ask("IS_CANCELLED", each).number() for each in (99, number)]))
    stub.send(99, out(request), last=True)
"""
    repository.add("m", code + ECHO_REST)
    assert numbers(infer(server, request("m", 1))) == [1]
    assert repository.texts() == ["[1, 0]"]


@pytest.mark.parametrize("decoupled", [False, True])
def test_an_output_of_a_model_whose_configuration_has_none_is_an_error(repository, server, decoupled):
    sends = (
        "def execute(requests, stub):\n    stub.send(requests[0][0], out(requests[0][1]), last=True)\n    return [0]\n"
    )
    config = CONFIG.partition("output")[0] + DECOUPLED * decoupled
    repository.add("m", sends if decoupled else ECHO, config)
    response = infer(server, request("m", 1))
    assert (response.error, response.outputs) == ("unexpected inference output 'OUT' for model 'm'", ())
    repository.add(
        "nothing", "def execute(requests, stub):\n    return [Response()]\n", config.partition("model_tr")[0]
    )
    response = infer(server, request("nothing", 1))
    assert (response.error, response.outputs) == (None, ())


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
    infer(server, request("asks", *content, parameters=json.dumps({"ask": what})))
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
    needs = "the request needs model '{0}', which is not ready: {1}"
    assert ask(server, repository, "none", 4) == needs.format("none", "there is no model 'none' in the repository")
    assert ask(server, repository, "broken", 4) == needs.format("broken", "not loaded")
    assert ask(server, repository, "m version", 4) == "the request needs version 5 of model 'm', which is not ready"
    assert [(line.text, line.level, line.place, line.model) for line in repository.logged if line.level != "info"] == [
        ("there is no model 'none' in the repository", "error", "", "none"),
        ("not loaded", "error", "", "broken"),
    ]


def test_models_that_need_each_other_to_be_loaded_are_an_error_at_once(repository, server):
    needs = """
def initialize(arguments, *_):
    STUB.ask("INFER", False, Request(
        id="", sequence=0, model="{}", version=-1, flags=0, timeout=0, parameters="{{}}", outputs=["OUT"], inputs=[],
    ))
"""
    for name, other in (("one", "two"), ("two", "three"), ("three", "one")):
        repository.add(name, needs.format(other) + ECHO)
    with pytest.raises(ModelFailed) as raised:
        infer(server, request("one", 1))
    text = "the request needs model '{}', which is not ready: "
    assert raised.value.text == "".join(map(text.format, ("two", "three", "one"))) + "model 'one' is being loaded"


def test_a_model_that_cannot_be_made_is_not_ready_for_others(repository):
    def find(name):
        if name == "m":
            raise InputError("bad-requirements", "no requirements", "correct them")
        return source(name)

    source, repository.source = repository.source, find
    repository.add("asks", ASK)
    with repository.server() as server:
        text = "the request needs model 'm', which is not ready: no requirements (correct them)"
        assert ask(server, repository, "m", 4) == text
    (line,) = (line for line in repository.logged if line.level != "info")
    assert (line.text, line.level, line.place, line.model) == ("no requirements (correct them)", "error", "", "m")


def test_a_model_asks_a_decoupled_one(repository, server):
    repository.add("asks", ASK)
    repository.add("m", COUNT, CONFIG + DECOUPLED)
    assert ask(server, repository, "m decoupled", 2) == "[[false, [0]], [false, [4]], [true, []]]"
    assert ask(server, repository, "m", 2) == "model 'm' is decoupled: give decoupled=True to exec() or async_exec()"


@pytest.mark.parametrize(("release", "last"), [(2503, "true"), (2504, "false")])
def test_a_stream_that_begins_with_an_error_goes_on_since_25_04(repository, release, last):
    repository.add("asks", ASK.replace("while not", "while False and not"))
    code = "def execute(requests, stub):\n    n = requests[0][0]\n    stub.send(n, Response(error='first'))\n"
    repository.add("m", code + "    stub.send(n, out(requests[0][1]), last=True)\n    return [0]\n", CONFIG + DECOUPLED)
    with repository.server(release) as server:
        assert ask(server, repository, "m decoupled", 2) == f'[[{last}, "first"]]'


@pytest.mark.parametrize(("release", "code"), [(2503, 1), (2504, 5)])
@pytest.mark.parametrize("decoupled", [False, True])
def test_models_see_the_code_of_an_error_since_25_04(repository, release, code, decoupled):
    repository.add("asks", ASK.replace("first.error or", "first.code if first.error else"))
    failing = "Response(error='unsupported', code=5)"
    answer = f"stub.send(requests[0][0], {failing}, last=True)\n    return [0]" if decoupled else f"return [{failing}]"
    repository.add("m", f"def execute(requests, stub):\n    {answer}\n", CONFIG + DECOUPLED * decoupled)
    with repository.server(release) as server:
        assert ask(server, repository, "m decoupled" if decoupled else "m", 2) == f"[[true, {code}]]"


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


def test_a_model_changes_and_reads_its_metrics(repository, server):
    repository.add("m", METRICS)
    infer(server, request("m", 1))
    assert repository.texts() == ["[2.5, 'FailedError', 'FailedError']"]
