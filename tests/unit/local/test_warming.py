"""The warm-ups of a model: as a Triton 24.10 server sends them."""

import ast
import struct

import pytest

from envpack.local.model_process import ModelFailed
from tests.unit.local.conftest import CONFIG, DECOUPLED, ECHO, infer, numbers, request

SEEN = """
def execute(requests, stub):
    stub.log(str([(request.inputs[0].shape, ints(request.inputs[0].content)) for _, request in requests]))
"""
ANSWERS = "    return [out(request) for _, request in requests]\n"
ONE = "batch_size: 1"


def warmup(fields=ONE, data="zero_data: true", dims="[ 2 ]", datatype="TYPE_INT32"):
    value = f"data_type: {datatype} dims: {dims} {data}"
    return f'model_warmup [ {{ name: "w" {fields} inputs {{ key: "IN" value {{ {value} }} }} }} ]\n'


@pytest.mark.parametrize(
    ("config", "seen"),
    [
        (warmup(), ["[([2], [0, 0])]"]),
        (warmup("batch_size: 1 count: 2"), ["[([2], [0, 0])]"] * 2),
        (warmup(""), []),
        ("max_batch_size: 4\n" + warmup("batch_size: 2"), ["[([1, 2], [0, 0]), ([1, 2], [0, 0])]"]),
        (warmup(data='input_data_file: "two"'), ["[([2], [5, 6])]"]),
    ],
    ids=["one", "count", "none", "batch", "file"],
)
def test_a_model_is_warmed_up_before_it_is_ready(repository, server, config, seen):
    repository.add("m", SEEN + ANSWERS, config=CONFIG + config)
    (repository.folder / "m/warmup").mkdir()
    (repository.folder / "m/warmup/two").write_bytes(struct.pack("<3i", 5, 6, 7))
    server.model("m")
    assert repository.texts("info") == seen


def test_an_input_that_is_not_declared_reaches_the_model(repository, server):
    optional = CONFIG.replace("input [ {", "input [ { optional: true")
    repository.add("m", SEEN + ANSWERS, config=optional + warmup().replace('"IN"', '"OTHER"'))
    server.model("m")
    assert repository.texts("info") == ["[([2], [0, 0])]"]


def test_random_numbers_fill_the_input_and_strings_are_empty(repository, server):
    repository.add("m", SEEN + ANSWERS, config=CONFIG + warmup(data="random_data: true", dims="[ 64 ]"))
    strings = (CONFIG + warmup(data="random_data: true", datatype="TYPE_STRING")).replace("TYPE_INT32", "TYPE_STRING")
    repository.add("text", SEEN + ECHO.replace("def execute(requests, stub):\n", ""), config=strings)
    server.model("m")
    server.model("text")
    random, text = repository.texts("info")
    ((_, content),) = ast.literal_eval(random)
    assert (len(content), len(set(content)) > 60) == (64, True)
    assert text == "[([2], [0, 0])]", "the length of each string, in four bytes"


SENDS = """
def execute(requests, stub):
    ((number, request),) = requests
    stub.ask("SEND", number, 1, True, Response(error="sent"))
    return [None]
"""
# What a model does with a warm-up, what its configuration has beside, and what the error of its load says.
FAILS = {
    "raises": ("def execute(requests, stub):\n    raise ValueError('cold')\n", "", "cold"),
    "answers": ("def execute(requests, stub):\n    return [Response(error='cold')]\n", "", "cold"),
    "sends": (SENDS, DECOUPLED, "sent"),
    "ends": (
        "def execute(requests, stub):\n    os._exit(3)\n",
        "",
        "the process of 'm' ended with status 3 while execute",
    ),
}


@pytest.mark.parametrize("name", FAILS)
def test_a_model_that_fails_its_warmup_is_not_loaded(repository, server, name):
    code, config, reason = FAILS[name]
    repository.add("m", code, config=CONFIG + config + warmup())
    with pytest.raises(ModelFailed, match=f"failed to run warmup sample 'w': {reason}"):
        server.model("m")


def test_a_warmed_up_model_answers(repository, server):
    repository.add("m", ECHO, config=CONFIG + warmup())
    assert numbers(infer(server, request("m", 1, 2))) == [1, 2]


def test_a_warmup_has_a_limit_of_bytes(repository, server):
    repository.add("m", ECHO, config=CONFIG + warmup(dims="[ 4294967296 ]"))
    with pytest.raises(ModelFailed, match="an input of the warm-up 'w' has 17179869184 bytes, and may have 4294967296"):
        server.model("m")
