"""Configurations of models: the server's defaults, the model's completion, and what a server refuses to load."""

import json
from pathlib import Path

import pytest

from envpack.inspection.configuration import fit_faults
from envpack.local.model_config import (
    complete_config,
    completion_fault,
    config_json,
    instance_arguments,
    merge_completion,
)
from envpack.repository.config import parse_config
from envpack.repository.config_rules import config_faults

TENSORS = """
input [ { name: "A" data_type: TYPE_INT32 dims: [ 2 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 2 ] } ]
"""


def completed(text="", name="m"):
    return complete_config(parse_config(text, "config.pbtxt"), name)


def document(text="", name="m"):
    return json.loads(config_json(completed(text, name)))


def test_a_configuration_gets_the_defaults_of_a_server():
    given = parse_config(TENSORS, "config.pbtxt")
    found = json.loads(config_json(complete_config(given, "m")))
    assert given == parse_config(TENSORS, "config.pbtxt"), "the argument must not change"
    assert {name: found[name] for name in ("name", "backend", "default_model_filename", "version_policy")} == {
        "name": "m",
        "backend": "python",
        "default_model_filename": "model.py",
        "version_policy": {"latest": {"num_versions": 1}},
    }
    memory = found["optimization"]
    assert (memory["input_pinned_memory"], memory["output_pinned_memory"]) == ({"enable": True}, {"enable": True})
    (group,) = found["instance_group"]
    assert (group["name"], group["kind"], group["count"]) == ("m", "KIND_CPU", 1)
    assert found["input"][0]["dims"] == [2]
    assert found["input"][0]["data_type"] == "TYPE_INT32"
    assert "dynamic_batching" not in found
    assert found["parameters"] == {}


def test_what_the_configuration_says_stays():
    found = document(
        """backend: "other" default_model_filename: "own.py" version_policy { all {} }
        optimization { input_pinned_memory { enable: false } }
        instance_group [ { count: 3, kind: KIND_GPU, gpus: [ 2 ] }, { name: "own", kind: KIND_MODEL } ]
        parameters { key: "k" value { string_value: "v" } }"""
    )
    assert (found["backend"], found["default_model_filename"]) == ("other", "own.py")
    assert found["version_policy"] == {"all": {}}
    assert found["optimization"]["input_pinned_memory"] == {"enable": False}
    groups = [(group["name"], group["count"], group["kind"]) for group in found["instance_group"]]
    assert groups == [("m_0", 3, "KIND_GPU"), ("own", 1, "KIND_MODEL")]
    assert found["parameters"] == {"k": {"string_value": "v"}}


def test_schedulers_get_what_a_server_adds():
    assert document("max_batch_size: 4 dynamic_batching {}")["dynamic_batching"]["preferred_batch_size"] == [4]
    own = document("max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 2 ] }")
    assert own["dynamic_batching"]["preferred_batch_size"] == [2]
    assert document("dynamic_batching {}")["dynamic_batching"]["preferred_batch_size"] == []
    for idle, expected in (("", 1_000_000), ("max_sequence_idle_microseconds: 5", 5)):
        found = document(f"sequence_batching {{ {idle} }}")
        assert found["sequence_batching"]["max_sequence_idle_microseconds"] == expected


def test_an_ensemble_has_no_backend_and_no_instances():
    found = document('platform: "ensemble" ensemble_scheduling {}')
    assert (found["backend"], found["default_model_filename"], found["instance_group"]) == ("", "", [])


def test_numbers_are_written_as_a_server_writes_them():
    text = """max_batch_size: 1
    optimization { cuda { graph_spec [ { batch_size: 1 input { key: "A" value { dim: [ 3 ] } } } ] } }
    sequence_batching { state [ { input_name: "S" initial_state { data_type: TYPE_INT32 dims: [ 2 ] name: "i" } } ] }
    """
    found = document(text)
    assert found["optimization"]["cuda"]["graph_spec"][0]["input"]["A"]["dim"] == ["3"]
    assert found["sequence_batching"]["state"][0]["initial_state"][0]["dims"] == ["2"]
    device = document("instance_group { secondary_devices { device_id: 4 } }")["instance_group"][0]["secondary_devices"]
    assert device == [{"kind": "KIND_NVDLA", "device_id": "4"}]
    text = "dynamic_batching { max_queue_delay_microseconds: 100 }"
    assert '"max_queue_delay_microseconds":100,' in config_json(completed(text))
    floats = "sequence_batching { direct { minimum_slot_utilization: 1.0 } }"
    assert '"minimum_slot_utilization":1' in config_json(completed(floats))
    assert "é" in config_json(completed('parameters { key: "é" value { string_value: "é" } }'))


def test_a_completion_decides_inputs_outputs_batch_scheduler_and_decoupled():
    before = completed(TENSORS)
    proposed = {
        "name": "other",
        "backend": "other",
        "max_batch_size": 8,
        "input": [{"name": "B", "data_type": "TYPE_FP32", "dims": [3]}],
        "output": [{"name": "Z", "data_type": "TYPE_FP32", "dims": [4]}],
        "dynamic_batching": {},
        "model_transaction_policy": {"decoupled": True},
    }
    after, text = merge_completion(before, json.dumps(proposed))
    assert text == config_json(after)
    found = json.loads(text)
    assert (found["name"], found["backend"], found["max_batch_size"]) == ("m", "python", 8)
    assert [entry["name"] for entry in (*found["input"], *found["output"])] == ["B", "Z"]
    assert found["dynamic_batching"]["preferred_batch_size"] == [8], "the defaults hold for the completion, too"
    assert found["model_transaction_policy"] == {"decoupled": True}
    assert [entry.name for entry in before.input] == ["A"], "the argument must not change"


def test_a_completion_does_not_replace_a_scheduler():
    before = completed(f"max_batch_size: 4 sequence_batching {{ direct {{}} }} {TENSORS}")
    after, _ = merge_completion(before, json.dumps({"max_batch_size": 4, "dynamic_batching": {}}))
    assert (after.HasField("sequence_batching"), after.HasField("dynamic_batching")) == (True, False)
    assert not after.model_transaction_policy.decoupled


def test_a_completion_that_does_not_fit_reaches_the_model_only():
    before = completed(TENSORS)
    for answer in ('{"unknown":[1,2],"é":1}', '{"input":1,"output":[2]}'):
        assert merge_completion(before, answer) == (before, answer)


def test_a_completion_may_give_one_dimension_as_a_number():
    proposed = {"input": [{"name": "A", "data_type": "TYPE_INT32", "dims": 3}]}
    after, text = merge_completion(completed(), json.dumps(proposed))
    assert ([*after.input[0].dims], json.loads(text)["input"][0]["dims"]) == ([3], [3])


@pytest.mark.parametrize(
    ("decoupled", "ends"), [("true", False), ("false", False), ('"true"', False), ("1", True), ("0", True)]
)
def test_a_number_for_decoupled_ends_a_server(decoupled, ends):
    fault = completion_fault(f'{{"model_transaction_policy": {{"decoupled": {decoupled}}}}}')
    assert bool(fault) == ends
    assert completion_fault("{}") == ""


@pytest.mark.parametrize(
    ("group", "name", "kind", "device"),
    [
        ("", "m_0", "CPU", "0"),
        ("{ kind: KIND_GPU gpus: [ 3, 1 ] }", "m_0_0", "GPU", "3"),
        ("{ name: 'x' kind: KIND_MODEL }", "x_0", "MODEL", "0"),
    ],
)
def test_what_the_first_instance_is_told(group, name, kind, device):
    found = instance_arguments(completed(f"instance_group [ {group} ]" if group else ""), "{}", "/models/m", "2")
    assert found == {
        "model_config": "{}",
        "model_instance_kind": kind,
        "model_instance_name": name,
        "model_instance_device_id": device,
        "model_repository": "/models/m",
        "model_version": "2",
        "model_name": "m",
    }


def one(entry, kind="input", batch=0):
    return f"max_batch_size: {batch} {kind} [ {{ {entry} }} ]"


def on_cpu(value):
    return f'parameters {{ key: "FORCE_CPU_ONLY_INPUT_TENSORS" value {{ string_value: "{value}" }} }}'


REFUSED = [
    ("max_batch_size: -1", "'max_batch_size' must be non-negative value"),
    (one("data_type: TYPE_INT8 dims: [1]"), "model input must specify 'name'"),
    (one("name: 'A' dims: [1]"), "model input 'A' must specify 'data_type'"),
    (one("name: 'Y' data_type: TYPE_INT8", "output"), "model output 'Y' must specify 'dims'"),
    (
        one("name: 'A' data_type: TYPE_INT8 dims: [1, 0]"),
        "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size dimension",
    ),
    (
        one("name: 'A' data_type: TYPE_INT8 dims: [-2]"),
        "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size dimension",
    ),
    (
        one("name: 'A' data_type: TYPE_INT8 dims: [1] reshape {}"),
        "model input 'A' cannot have empty reshape for non-batching model as scalar tensors are not supported",
    ),
    (
        one("name: 'A' data_type: TYPE_INT8 dims: [2] reshape { shape: [3] }"),
        "model input 'A' has different size for dims and reshape",
    ),
    (on_cpu("YES"), "the parameter FORCE_CPU_ONLY_INPUT_TENSORS is 'YES', and must be 'yes' or 'no'"),
    (on_cpu(""), "the parameter FORCE_CPU_ONLY_INPUT_TENSORS is '', and must be 'yes' or 'no'"),
]


def test_what_a_server_does_not_load():
    said = []
    for text, _ in REFUSED:
        config = completed(text)
        said.append(next(config_faults(config, Path("/nowhere"), is_complete=True)))
    assert said == [expected for _, expected in REFUSED]


def test_what_a_server_loads():
    for text in (
        TENSORS,
        one("name: 'A' data_type: TYPE_INT8 dims: [1, -1]"),
        one("name: 'A' data_type: TYPE_INT8 dims: [1] reshape {}", batch=1),
        one("name: 'A' data_type: TYPE_INT8 dims: [2, 3] reshape { shape: [6] }"),
        one("name: 'A' data_type: TYPE_INT8 dims: [-1] reshape { shape: [-1, 1] }"),
        on_cpu("yes"),
        on_cpu("no"),
    ):
        config = completed(text)
        assert not list(config_faults(config, Path("/nowhere"), is_complete=True))


def ensemble(steps, tensors=TENSORS, batch=0):
    return completed(
        f'platform: "ensemble" max_batch_size: {batch} {tensors} ensemble_scheduling {{ step [ {steps} ] }}', "e"
    )


def step(model="m", inputs="A:A", outputs="Y:Y"):
    def maps(kind, pairs):
        return " ".join(f'{kind} {{ key: "{p.split(":")[0]}" value: "{p.split(":")[1]}" }}' for p in pairs.split())

    return f'{{ model_name: "{model}" {maps("input_map", inputs)} {maps("output_map", outputs)} }}'


def model(text, name="m"):
    return completed(text, name)


OTHER = TENSORS.replace("INT32", "FP32")
ENSEMBLES = [
    (
        ensemble(step(), batch=2),
        {"m": model(f"max_batch_size: 1 {TENSORS}")},
        "ensemble e allows maximum batch size 2, but it contains model m which only allows maximum batch size to be 1",
    ),
    (
        ensemble(step(inputs="A:A B:A")),
        {"m": model(TENSORS)},
        "in ensemble e, ensemble tensor A is mapping to non-existing input B in model m",
    ),
    (
        ensemble(step(inputs="")),
        {"m": model(TENSORS)},
        "in ensemble e, input A in model m is not mapped to any ensemble tensors",
    ),
    (
        ensemble(step(outputs="X:Y")),
        {"m": model(TENSORS)},
        "in ensemble e, ensemble tensor Y is mapped from non-existing output X in model m",
    ),
    (
        ensemble(step()),
        {"m": model(OTHER)},
        (
            "in ensemble e, ensemble tensor A: inconsistent data type: TYPE_INT32 is inferred from model e while "
            "TYPE_FP32 is inferred from model m"
        ),
    ),
    (
        ensemble(f"{step('n', outputs='Y:T')}, {step(inputs='A:T')}"),
        {"m": model(OTHER.replace('"Y" data_type: TYPE_FP32', '"Y" data_type: TYPE_INT32')), "n": model(TENSORS, "n")},
        (
            "in ensemble e, ensemble tensor T: inconsistent data type: TYPE_INT32 is inferred from model n while "
            "TYPE_FP32 is inferred from model m"
        ),
    ),
    (
        ensemble(step()),
        {"m": model(TENSORS.replace("[ 2 ]", "[ 3 ]"))},
        (
            "in ensemble e, ensemble tensor A: inconsistent shape: [2] is inferred from model e while [3] is "
            "inferred from model m"
        ),
    ),
    (
        ensemble(step()),
        {"m": model(TENSORS.replace("[ 2 ]", "[ 1, 3 ]"))},
        (
            "in ensemble e, ensemble tensor A: inconsistent shape: [2] is inferred from model e while [1,3] is "
            "inferred from model m"
        ),
    ),
    (
        ensemble(step()),
        {"m": model(f"max_batch_size: 2 {TENSORS.replace('[ 2 ]', '[ 3 ]')}")},
        (
            "in ensemble e, ensemble tensor A: inconsistent shape: [2] is inferred from model e while [-1,3] is "
            "inferred from model m"
        ),
    ),
]


def test_steps_that_do_not_fit_their_models():
    said = []
    for found, models, _ in ENSEMBLES:
        said.append(next(fit_faults(found, models)))
    assert said == [expected for *_, expected in ENSEMBLES]


def test_steps_that_fit_their_models():
    optional = TENSORS.replace('name: "A"', 'name: "O" data_type: TYPE_INT8 dims: [ 1 ] optional: true }, { name: "A"')
    for found, models in (
        (ensemble(step()), {"m": model(TENSORS)}),
        (ensemble(step()), {}),  # a model that only a server has
        (ensemble(step()), {"m": model(optional)}),
        (ensemble(step(outputs="")), {"m": model(TENSORS)}),
        (ensemble(step(), batch=2), {"m": model(f"max_batch_size: 2 {TENSORS}")}),
        (ensemble(step()), {"m": model(TENSORS.replace("[ 2 ]", "[ -1 ]"))}),
        (ensemble(step(), TENSORS.replace("[ 2 ]", "[ -1 ]")), {"m": model(TENSORS)}),
        (ensemble(step(), batch=2), {"m": model(TENSORS)}),
        (ensemble(step(), batch=2), {"m": model(TENSORS.replace("[ 2 ]", "[ -1, 2 ]"))}),
        (ensemble(step()), {"m": model(f"max_batch_size: 2 {TENSORS}")}),
    ):
        assert not list(fit_faults(found, models))
