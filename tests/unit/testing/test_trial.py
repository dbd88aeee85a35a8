"""One run of a model: what it is sent, what becomes of each request, and how that is judged."""

import json
import os

import numpy as np
import pytest

from envpack.local.values import RawTensor
from envpack.server.tensors import encode, read_served_config
from envpack.support.errors import InputError
from envpack.testing import ModelError
from envpack.testing.model import check_can_save, from_array, read_arrays, save_arrays, to_array
from envpack.testing.opening import LocalModels
from envpack.testing.trial import Answer, Trial, check_sources, fix_of, read_requests, try_model
from envpack.verification.samples import SAMPLES_FILE
from tests.steps import Steps
from tests.tables import every_row
from tests.unit.local.conftest import CONFIG, DECOUPLED, Repository, numbers, tensor


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
    assert [text.count("[1, 1]") for text in repository.texts("info")[6:]] == [4, 1, 0]
    assert repository.texts("info")[-1] == "[[1, 2], [1, 2]]"


def test_a_request_that_a_server_rejects_is_in_no_batch(repository, server, tmp_path):
    repository.add("m", config=BATCHES + CONFIG.replace("[ -1 ]", "[ 1 ]"))
    np.savez(tmp_path / "in.npz", IN=np.zeros((5, 1), np.int32))
    (answer,) = try_model(server, "m", repository.folder / "m", [str(tmp_path / "in.npz")]).answers
    assert "its batch has 5 items, and the model takes 1 to 4" in answer.fault
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


# What is sent


TEXT = {"name": "T", "data_type": "TYPE_STRING", "dims": [1, -1]}
NUMBERS = {"name": "N", "data_type": "TYPE_INT32", "dims": [2]}
BF16 = {"name": "H", "data_type": "TYPE_BF16", "dims": [-1]}


def served(*inputs):
    return read_served_config({"name": "m", "input": list(inputs), "output": [], "max_batch_size": 0})


def read(tmp_path, config, *sources):
    return read_requests([source.replace("@", f"{tmp_path}/") for source in sources], config, "m", tmp_path)[0]


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "n.npy", np.array([1, 2], np.int32))
    np.savez(tmp_path / "both.npz", N=np.array([1, 2], np.int32), T=np.array([[b"x"]]))
    (tmp_path / "text").write_bytes(b"con\0tent")
    (tmp_path / "a=b").write_bytes(b"named")
    sample = {"T": {"content": ["x"], "shape": [1, 1]}, "N": {"content": [3, 4], "shape": [2]}}
    (tmp_path / "samples.json").write_text(json.dumps({"data": [sample, sample]}))
    return tmp_path


def test_files_become_inputs(files):
    text = RawTensor("T", "BYTES", (1, 1), encode("BYTES", (b"con\0tent",)))
    array = tensor("N", 1, 2)
    one, both = served(NUMBERS), served(TEXT, NUMBERS)
    cases = [
        (one, ["@n.npy"], (array,)),
        (both, ["N=@n.npy", "@text"], (array, text)),
        (both, ["T=@text", "N=@n.npy"], (text, array)),
        (both, ["@both.npz"], (array, RawTensor("T", "BYTES", (1, 1), encode("BYTES", (b"x",))))),
        (served(TEXT), ["@a=b"], (RawTensor("T", "BYTES", (1, 1), encode("BYTES", (b"named",))),)),
    ]
    for config, sources, expected in cases:
        (found,) = read(files, config, *sources)
        assert (found.inputs, found.model) == (expected, "m"), sources


def test_samples_become_requests(files):
    config = served(TEXT, NUMBERS)
    found = read(files, config, "@samples.json")
    assert [[entry.name for entry in each.inputs] for each in found] == [["T", "N"]] * 2
    assert found[0].inputs[1] == tensor("N", 3, 4)
    assert {each.model for each in found} == {"m"}
    (files / SAMPLES_FILE).parent.mkdir(exist_ok=True)
    (files / "samples.json").rename(files / SAMPLES_FILE)
    assert read(files, config) == found, "the model's own samples come before made-up requests"


def test_samples_of_a_sequence_carry_their_flags(files):
    entry = {"N": {"content": [3, 4], "shape": [2]}}
    (files / "s.json").write_text(json.dumps({"data": [[entry, entry, entry]]}))
    config = read_served_config({"name": "m", "input": [NUMBERS], "output": [], "sequence_batching": {}})
    found = read(files, config, "@s.json")
    assert [each.flags for each in found] == [1, 0, 2]
    assert len({each.correlation_id for each in found} - {0}) == 1


REFUSED = [
    ((TEXT, NUMBERS), ("@samples.json", "N=@n.npy"), "samples hold all inputs of a request, but --input is given more"),
    ((NUMBERS,), ("@n.npy", "@n.npy"), "the input 'N' is given twice"),
    ((NUMBERS,), ("X=@n.npy",), "the model has no input 'X', only N"),
    ((NUMBERS,), ("@text",), "the model has no input of strings, which files can be sent to"),
    ((TEXT, NUMBERS), ("N=@text",), "the input 'N' is no input of strings, which files can be sent to"),
    ((TEXT, {**TEXT, "name": "U"}), ("@text",), "the model has 2 inputs of strings"),
    ((TEXT,), ("@absent",), "cannot be read: No such file or directory"),
    ((TEXT, NUMBERS), ("@n.npy",), "the model has no input '', only T, N"),
    ((TEXT,), ("@both.npz",), "the model has no input 'N', only T"),
]


def test_files_that_do_not_fit_are_refused(files):
    said = []
    for inputs, sources, _ in REFUSED:
        with pytest.raises(InputError) as raised:
            read(files, served(*inputs), *sources)
        said.append((raised.value.kind, raised.value.message))
    assert [kind for kind, _ in said] == ["bad-input"] * len(REFUSED)
    for (_, message), (*_, expected) in zip(said, REFUSED, strict=True):
        assert message.startswith(expected)


def test_files_that_cannot_be_read_are_refused_before_a_model_is_loaded(files):
    check_sources([str(files / "text"), f"T={files / 'text'}", str(files / "a=b")])
    check_sources([])
    for source in (str(files / "absent"), f"T={files / 'absent'}", str(files)):
        with pytest.raises(InputError, match="^.*cannot be read: ") as raised:
            check_sources([source])
        assert raised.value.kind == "bad-input"
        assert raised.value.where == source.removeprefix("T=")


# Arrays


def test_arrays_in_any_order_and_byte_order():
    big = np.array([[1, 2], [3, 4]], ">i4", order="F")
    assert from_array("X", big) == RawTensor("X", "INT32", (2, 2), encode("INT32", (1, 2, 3, 4)))
    assert from_array("X", np.array(["a", "é"])).content == encode("BYTES", (b"a", "é".encode()))
    assert from_array("X", np.array([1], np.uint16), "UINT16").datatype == "UINT16"
    assert from_array("X", [1, 2]).shape == (2,)
    for array in (np.array([1j]), np.array(["2020-01-01"], "M8[D]"), np.array([1], np.longdouble)):
        with pytest.raises(InputError, match="fit no type of a model"):
            from_array("X", array)


def test_strings_keep_their_shape():
    found = to_array(RawTensor("Y", "BYTES", (2, 1), encode("BYTES", (b"a", b""))))
    assert (found.shape, found.dtype, found.tolist()) == ((2, 1), object, [[b"a"], [b""]])


def test_what_is_saved_can_be_read_without_pickle(tmp_path):
    tensors = (tensor("N", 1, 2), RawTensor("T", "BYTES", (2,), encode("BYTES", (b"a", b"bc"))))
    check_can_save(tmp_path / "out.npz")
    save_arrays(tensors, tmp_path / "out.npz")
    found = read_arrays(tmp_path / "out.npz")
    assert {name: array.tolist() for name, array in found.items()} == {"N": [1, 2], "T": [b"a", b"bc"]}
    np.save(tmp_path / "one.npy", np.array([7]))
    assert {name: array.tolist() for name, array in read_arrays(tmp_path / "one.npy").items()} == {"": [7]}


def test_files_that_cannot_be_written_are_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="cannot be written: its folder does not exist"):
        check_can_save(tmp_path / "absent/out.npz")
    monkeypatch.setattr(
        os, "access", lambda place, mode: (place, mode) != (tmp_path, os.W_OK)
    )  # root may write anywhere
    with pytest.raises(InputError, match="cannot be written: its folder may not be written to"):
        check_can_save(tmp_path / "out.npz")
    with pytest.raises(InputError, match="cannot be written: "):
        save_arrays((tensor("N", 1),), tmp_path / "absent/out.npz")


@pytest.mark.parametrize("content", [b"", b"noise", b"PK\x03\x04 no archive", b"\x93NUMPY\x01\x00"])
def test_damaged_arrays_are_refused(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    for file in (tmp_path / "x.npy", tmp_path / "absent.npy"):
        with pytest.raises(InputError, match="cannot be read: ") as raised:
            read_arrays(file)
        assert (raised.value.kind, raised.value.where) == ("bad-input", str(file))
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read: Object arrays cannot be loaded"):
        read_arrays(tmp_path / "o.npy")


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
