"""One run of a model: what it is sent, what becomes of each request, and how that is judged."""

import json

import numpy as np
import pytest

from envpack.testing import ModelError
from envpack.testing.opening import LocalModels
from envpack.testing.trial import Answer, Trial, fix_of, try_model
from envpack.verification.samples import SAMPLES_FILE
from tests.steps import Steps
from tests.tables import every_row
from tests.unit.local.conftest import CONFIG, DECOUPLED, Repository, numbers


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


@pytest.fixture
def server(repository):
    """Models that run locally."""
    with repository.server() as found:
        yield LocalModels(found, repository.logged)


def array_file(folder, *values):
    np.save(folder / "in.npy", np.array(values, np.int32))
    return [str(folder / "in.npy")]


def test_a_model_is_loaded_and_sent_each_request_as_often_as_asked(repository, server, tmp_path):
    repository.add("m", "def execute(requests, stub):\n    stub.log('run')\n    return [out(r) for _, r in requests]\n")
    steps = Steps()
    trial = try_model(server, "m", repository.folder / "m", array_file(tmp_path, 4, 5), repeat=3, progress=steps)
    (answer,) = trial.answers
    assert (trial.model, trial.ok, answer.fault, len(answer.seconds)) == ("m", True, "", 3)
    assert [numbers(response) for response in answer.responses] == [[4, 5]]
    assert [entry.name for entry in trial.config.inputs] == ["IN"]
    assert trial.load_seconds > 0
    assert min(answer.seconds) > 0
    assert repository.texts() == ["run"] * 3
    assert steps.seen[0] == f"m: load: ready in {trial.load_seconds:.2f} s"


RAISED = "boom\n\nAt:\n  /m/1/model.py(3): execute\n"
# By what a model without samples reads: its code, what was made up, how many requests it was sent, and its fault.
MADE_UP = {
    "anything": ("return out(request)", "ones", 1, ""),
    "zeros": ("return out(request) if numbers == [0] else Response(error='no')", "zeros", 2, ""),
    "many": ("return out(request) if len(numbers) > 16 else boom()", "variable dimensions of 224", 4, ""),
    "nothing": ("boom()", "ones", 8, "boom"),
    "what it misses": ("raise ValueError(\"NameError: name 'np' is not defined\")", "ones", 1, "NameError: name 'np'"),
    "what ends it": ("return out(request) if numbers == [1, 1] else os._exit(3)", "ones", 1, "with status 3"),
    "for ever": ("return Response(error='no') if numbers == [1] else time.sleep(600)", "zeros", 2, "allows more time"),
    "and answers wrongly": ("return Response([replace(out(request).outputs[0], datatype='FP32')])", "ones", 1, "OUT"),
}


@every_row("what", MADE_UP)
def test_what_verify_would_make_up_is_sent_until_the_model_answers(repository, what):
    line, made_up, sent, fault = MADE_UP[what]
    code = f"""
def boom():
    raise ValueError({RAISED!r})

def answer(request, numbers):
    {line}

def execute(requests, stub):
    stub.log("run")
    return [answer(request, ints(request.inputs[0].content)) for _, request in requests]
"""
    repository.add("m", code)
    repository.logged.clear()
    with repository.server(timeout=2) as found:
        (answer,) = try_model(LocalModels(found, repository.logged), "m", repository.folder / "m").answers
    assert (answer.made_up, repository.texts().count("run")) == (made_up, sent)
    assert fault in answer.fault
    assert bool(answer.fault) == bool(fault)


def test_what_the_model_answers_is_repeated_and_what_it_refuses_is_not(repository, server):
    code = "def execute(requests, stub):\n    stub.log('run')\n    return [answer(r) for _, r in requests]\n"
    zeros = "def answer(r):\n    return Response(error='no') if 1 in ints(r.inputs[0].content) else out(r)\n"
    repository.add("m", zeros + code)
    (answer,) = try_model(server, "m", repository.folder / "m", repeat=3).answers
    assert (answer.made_up, answer.refused, len(answer.seconds), len(repository.texts())) == ("zeros", 1, 3, 4)


def test_a_model_may_refuse_all_that_was_made_up(repository, server, tmp_path):
    repository.add("m", "def execute(requests, stub):\n    raise ValueError('boom')\n")
    (made_up,) = try_model(server, "m", repository.folder / "m").answers
    what = "if the model is right to refuse what was made up, 8 requests"
    assert (made_up.fault, made_up.fix) == ("boom", f"{what}, give a request that it takes: --input FILE")
    (given,) = try_model(server, "m", repository.folder / "m", array_file(tmp_path, 4)).answers
    assert (given.made_up, given.fix) == ("", "")


def test_the_text_of_an_error_is_no_answer_to_what_was_made_up(repository, server):
    """As for `envpack verify`."""
    code = "def execute(requests, stub):\n    return [answer(r) for _, r in requests]\n"
    text = """
def answer(r, accepted=ACCEPTED):
    if ints(r.inputs[0].content) == accepted:
        text = b"fine"
    else:
        text = b"ValueError: boom"
    content = len(text).to_bytes(4, "little") + text
    return Response([replace(r.inputs[0], name="OUT", datatype="BYTES", content=content, shape=[1])])
"""
    config = CONFIG.replace('"OUT" data_type: TYPE_INT32', '"OUT" data_type: TYPE_STRING')
    for accepted, made_up, refused, fault in (("[0]", "zeros", 1, ""), ("None", "ones", 8, "ValueError: boom")):
        repository.add("m", text.replace("ACCEPTED", accepted) + code, config)
        server.forget("m")
        (answer,) = try_model(server, "m", repository.folder / "m").answers
        assert (answer.made_up, answer.refused, answer.fault) == (made_up, refused, fault)
        assert ("--input FILE" in answer.fix) == bool(fault)


FAULTS = {
    "an error": ("raise ValueError('boom')", "", "boom"),
    "an error without a text": ("return [Response(error='') for _ in requests]", "", "no reason given"),
    "another type": (
        "return [Response([replace(out(r).outputs[0], datatype='FP32')]) for _, r in requests]",
        "",
        "OUT",
    ),
    "no response": ("stub.send(requests[0][0], last=True)\n    return [0]", "", "expected a single response, got 0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_verify_would_refuse_is_a_fault(repository, server, tmp_path, name):
    code, config, fault = FAULTS[name]
    repository.add("m", f"def execute(requests, stub):\n    {code}\n", CONFIG + config)
    trial = try_model(server, "m", repository.folder / "m", array_file(tmp_path, 4))
    assert not trial.ok
    assert fault in trial.answers[0].fault


def test_what_fails_is_not_repeated(repository, server, tmp_path):
    code = """
seen = []
def execute(requests, stub):
    seen.append(1)
    if len(seen) == 1:
        raise ValueError("first")
    return [out(requests[0][1])]
"""
    repository.add("m", code)
    trial = try_model(server, "m", repository.folder / "m", array_file(tmp_path, 4), repeat=2)
    assert (trial.answers[0].fault, len(trial.answers[0].seconds)) == ("first", 1)


def test_a_decoupled_model_may_send_any_number(repository, server, tmp_path):
    code = "def execute(requests, stub):\n    n, r = requests[0]\n    stub.send(n, out(r))\n    stub.send(n, out(r))\n"
    repository.add("m", code + "    stub.send(n, last=True)\n    return [0]\n", CONFIG + DECOUPLED)
    trial = try_model(server, "m", repository.folder / "m", array_file(tmp_path, 4))
    assert (trial.ok, [numbers(response) for response in trial.answers[0].responses]) == (True, [[4], [4]])


def with_samples(repository, *expected, **settings):
    """A model that returns its input 4, once for each expected answer, and the samples beside it."""
    repository.add("m")
    file = repository.folder / "m" / SAMPLES_FILE
    file.parent.mkdir()
    samples = {"data": [{"IN": [4]}] * len(expected), "validation_data": expected, "envpack": settings}
    file.write_text(json.dumps(samples))


def test_answers_are_compared_with_those_that_samples_expect(repository, server):
    with_samples(repository, {"OUT": [4]}, {"OUT": [5]}, {})
    trial = try_model(server, "m", repository.folder / "m")
    assert [answer.difference for answer in trial.answers] == ["", "OUT element 0 is 4 instead of 5", ""]
    assert (trial.ok, str(trial.samples)) == (False, "1 of 2 samples right, 2 needed, 1 without expected outputs")


def test_as_many_answers_have_to_be_right_as_the_samples_say(repository, server):
    with_samples(repository, {"OUT": [4]}, {"OUT": [5]}, minimum_match=0.5, noun="numbers")
    trial = try_model(server, "m", repository.folder / "m", repeat=2)
    assert (trial.ok, str(trial.samples)) == (True, "1 of 2 numbers right, 1 needed")


def test_without_expected_answers_none_is_counted(repository, server):
    with_samples(repository, {}, {})
    assert try_model(server, "m", repository.folder / "m").samples is None


def test_streams_are_compared_with_those_that_samples_expect(repository, server):
    with_samples(repository, [{"OUT": [4]}], [{"OUT": [4]}, {}], [], {})
    code = (
        "def execute(requests, stub):\n    stub.send(requests[0][0], out(requests[0][1]), last=True)\n    return [0]\n"
    )
    repository.add("m", code, CONFIG + DECOUPLED)
    trial = try_model(server, "m", repository.folder / "m")
    assert [answer.difference for answer in trial.answers] == [
        *("", "1 response instead of 2", "1 response instead of 0", ""),
    ]


BATCHES = "max_batch_size: 4\ndynamic_batching { }\n"
# A model that merges requests: its execute(), and what the second of three answers lacks.
MERGING = {
    "right": ("return [out(r) for _, r in requests]", ""),
    "the same for all": ("return [out(requests[0][1])] * len(requests)", "OUT element 0 is 1 instead of 2"),
    "one for all": ("return [out(requests[0][1])]", "it sent what no stub sends"),
    "fails with others": ("1 / (len(requests) < 2)\n    return [out(r) for _, r in requests]", "division by zero"),
    "never the same": ("n = time.time_ns() & 0xffffff\n    return [out(r, lambda _: [n]) for _, r in requests]", ""),
}


@pytest.mark.parametrize("name", MERGING)
def test_where_a_server_merges_requests_they_are_sent_in_a_batch_too(repository, server, tmp_path, name):
    body, fault = MERGING[name]
    code = "def execute(requests, stub):\n    stub.log(str(len(requests)))\n"
    repository.add("m", f"{code}    {body}\n", BATCHES + CONFIG)
    (tmp_path / "in.json").write_text(json.dumps({"data": [{"IN": [n]} for n in (1, 2, 3)]}))
    trial = try_model(server, "m", repository.folder / "m", [str(tmp_path / "in.json")])
    assert [text for text in repository.texts("info") if text != "1"] == ["3"]
    assert trial.ok == (not fault)
    assert fault in trial.answers[1].fault
    assert trial.answers[1].fault.startswith("in a batch of 3 requests: " if fault else "")


def test_batches_have_no_more_items_than_the_configuration_allows_and_equal_shapes(repository, server, tmp_path):
    code = "def execute(requests, stub):\n    stub.log(repr([r.inputs[0].shape for _, r in requests]))\n"
    repository.add("m", code + "    return [out(r) for _, r in requests]\n", BATCHES + CONFIG)
    data = [[n] for n in range(5)] + [[1, 2]]
    (tmp_path / "in.json").write_text(json.dumps({"data": [{"IN": values} for values in data]}))
    assert try_model(server, "m", repository.folder / "m", [str(tmp_path / "in.json")]).ok
    batches = [text for text in repository.texts("info")[6:] if text.count("[") > 2]
    assert batches == ["[[1, 1], [1, 1], [1, 1], [1, 1]]", "[[1, 1], [2, 1]]", "[[1, 2], [2, 2]]"]


def test_requests_of_other_lengths_meet_in_a_batch_if_the_configuration_says_so(repository, server, tmp_path):
    code = "def execute(requests, stub):\n    stub.log(repr([r.inputs[0].shape for _, r in requests]))\n"
    ragged = CONFIG.replace("dims: [ -1 ] }", "dims: [ -1 ] allow_ragged_batch: true }", 1)
    repository.add("m", code + "    return [out(r) for _, r in requests]\n", BATCHES + ragged)
    (tmp_path / "in.json").write_text(json.dumps({"data": [{"IN": [1]}, {"IN": [1, 2]}]}))
    assert try_model(server, "m", repository.folder / "m", [str(tmp_path / "in.json")]).ok
    assert repository.texts("info")[-1] == "[[1, 1], [1, 2]]"


PADDED = """def width(request):
    return request[1].inputs[0].shape[1]

def padded(request, length):
    items, own = request.inputs[0].shape
    numbers = ints(request.inputs[0].content)
    rows = [numbers[at : at + own] + [0] * (length - own) for at in range(0, items * own, own)]
    answer = out(request, lambda _: sum(rows, []))
    return replace(answer, outputs=[replace(answer.outputs[0], shape=[items, length])])

"""
# By what a model does with requests of unequal lengths: its execute(), and the fault of the only request it is sent.
UNEQUAL = {
    "right": ("return [out(r) for _, r in requests]", ""),
    "as many items as the first": (
        "n = len(ints(requests[0][1].inputs[0].content))\n    return [out(r, lambda ns: ns[:n]) for _, r in requests]",
        "in a batch of 2 requests: OUT 1 elements instead of ",
    ),
    "pads to the longest": ("n = max(map(width, requests))\n    return [padded(r, n) for _, r in requests]", ""),
    "fails beside them": (
        (
            "uneven = len({len(r.inputs[0].content) for _, r in requests}) > 1\n"
            "    return [Response(error='uneven') if uneven else out(r) for _, r in requests]"
        ),
        "in a batch of 2 requests: uneven",
    ),
    "one item in a request": (
        "return [Response(error='two') if len(r.inputs[0].content) > 4 else out(r) for _, r in requests]",
        "with its items twice in one request: two",
    ),
}


@pytest.mark.parametrize("given", [False, True], ids=["made-up", "given"])
@pytest.mark.parametrize("name", UNEQUAL)
def test_the_only_request_is_sent_beside_one_of_another_length(repository, server, tmp_path, name, given):
    body, fault = UNEQUAL[name]
    ragged = CONFIG.replace("dims: [ -1 ] }", "dims: [ -1 ] allow_ragged_batch: true }", 1)
    repository.add("m", f"{PADDED}def execute(requests, stub):\n    {body}\n", BATCHES + ragged)
    (tmp_path / "in.json").write_text(json.dumps({"data": [{"IN": [4]}]}))
    sources = [str(tmp_path / "in.json")] if given else []
    (answer,) = try_model(server, "m", repository.folder / "m", sources).answers
    assert answer.fault.startswith(fault) if fault else not answer.fault


# What a model does with requests beyond the third, or with equal ones.
FILLED = {
    "fails": "return [out(r) if n < 3 else Response(error='a fourth') for n, (_, r) in enumerate(requests)]",
    "forgets equal ones": (
        "seen = {bytes(r.inputs[0].content): r for _, r in requests}\n"
        "    return [out(r) if r in seen.values() else Response(error='again') for _, r in requests]"
    ),
}


@pytest.mark.parametrize("name", FILLED)
def test_the_only_request_fills_a_batch(repository, server, name):
    repository.add("m", f"def execute(requests, stub):\n    {FILLED[name]}\n", BATCHES.replace("4", "32") + CONFIG)
    (answer,) = try_model(server, "m", repository.folder / "m").answers
    assert answer.fault.startswith("in a batch of 8 requests: a")


def test_a_request_that_a_server_rejects_is_in_no_batch(repository, server, tmp_path):
    repository.add("m", config=BATCHES + CONFIG.replace("[ -1 ]", "[ 1 ]"))
    np.savez(tmp_path / "in.npz", IN=np.zeros((5, 1), np.int32))
    (answer,) = try_model(server, "m", repository.folder / "m", [str(tmp_path / "in.npz")]).answers
    assert "its batch has 5 items, by the shape [5, 1], and the model takes 1 to 4" in answer.fault
    assert "in a batch" not in answer.fault


def test_what_a_server_would_reject_is_the_answer(repository, server, tmp_path):
    repository.add("m", config=CONFIG.replace("[ -1 ]", "[ 2 ]"))
    trial = try_model(server, "m", repository.folder / "m", array_file(tmp_path, 1, 2, 3))
    assert trial.answers[0].responses[0].error == trial.answers[0].fault
    assert "the input 'IN' has the shape [3], and the model takes [2]" in trial.answers[0].fault


def test_a_model_that_cannot_be_loaded_is_an_error(repository, server):
    repository.add("m", "raise ValueError('wrong')")
    with pytest.raises(ModelError, match="wrong"):
        try_model(server, "m", repository.folder / "m")


def test_the_latency_is_that_of_all_runs():
    def trial(*seconds):
        answers = tuple(Answer(None, seconds=[*part]) for part in seconds)
        return Trial("m", None, 1.0, answers)

    assert trial([0.5]).latency() == trial().latency() == {}
    found = trial([0.1, 0.3], [0.2]).latency()
    assert list(found) == ["mean", "p50", "p95", "p99", "longest"]
    assert (found["mean"], found["p50"], found["longest"]) == (pytest.approx(0.2), 0.2, 0.3)
    assert list(trial([0.1, 0.3]).latency()) == list(found)


def test_a_known_error_has_a_fix():
    known = "ModuleNotFoundError: No module named 'pandas'"
    assert "pandas" in fix_of(known)
    assert Answer(None, fault=known).fix == fix_of(known)
    assert Answer(None, fault="boom").fix == fix_of("boom") == ""
