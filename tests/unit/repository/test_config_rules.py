"""What a server refuses of a configuration: each row was refused or loaded by Triton 24.10."""

from envpack.repository.config import parse_config
from envpack.repository.config_rules import config_faults, later_fields
from tests.tables import every_row

BATCHED = "max_batch_size: 4\n"
START, END, CORRID = (f"control {{ kind: CONTROL_SEQUENCE_{kind} %s }}" for kind in ("START", "END", "CORRID"))
PAIR = "int32_false_true: [0, 1]"


def tensors(x="", y="", dims="1"):
    return f"""
        input {{ name: "X" data_type: TYPE_FP32 dims: [{dims}] {x} }}
        output {{ name: "Y" data_type: TYPE_FP32 dims: [{dims}] {y} }}
    """


def batching(text, head=BATCHED):
    return f"{head}dynamic_batching {{ {text} }}"


def sequences(text):
    return f"{BATCHED}sequence_batching {{ {text} }}"


def controls(*texts, name="C"):
    return sequences(f'control_input {{ name: "{name}" {" ".join(texts)} }}')


def initial(text, dims="1"):
    return sequences(
        f'state {{ input_name: "I" output_name: "O" data_type: TYPE_FP32 dims: [{dims}] initial_state {{ {text} }} }}'
    )


ZERO = 'name: "i" data_type: TYPE_FP32 dims: [1] zero_data: true'
LOADED = (
    "instance_group { passive: true } instance_group { }",
    batching("preferred_batch_size: [1, 4]"),
    batching("", head=""),
    batching("priority_levels: 2 default_priority_level: 2 priority_queue_policy { key: 1 value {} }"),
    batching("default_priority_level: 7 priority_queue_policy { key: 3 value {} }"),
    batching("preserve_ordering: true priority_levels: 1 default_priority_level: 1"),
    batching("preserve_ordering: true default_queue_policy { timeout_action: DELAY }"),
    batching("preserve_ordering: true default_queue_policy { default_timeout_microseconds: 5 }"),
    batching("default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }"),
    "instance_group { count: -1 kind: KIND_CPU }",
    "instance_group { kind: KIND_GPU gpus: [0] }",
    "instance_group { gpus: [0] }",
    'backend: "tensorrt" instance_group { profile: "a" }',
    "response_cache { enable: true }",
    'metric_tags { key: "team_1" } metric_tags { key: "1" } metric_tags { key: "" value: "a-b" }',
    "sequence_batching {}",
    sequences("oldest { max_candidate_sequences: -4 preferred_batch_size: 4 }"),
    sequences("direct { minimum_slot_utilization: 1 }"),
    controls(START % PAIR, END % "bool_false_true: [false, true]"),
    controls(CORRID % "data_type: TYPE_STRING"),
    initial(ZERO),
    'backend: "python" runtime: "libtriton_python.so"',
    'backend: "python" runtime: "./libtriton_python.so"',
    'backend: "python_3_8" runtime: "model.py"',
)
REFUSED = (
    ('runtime: "triton_python"', "the runtime 'triton_python' is neither a file of the model nor"),
    ("instance_group { passive: true } instance_group { passive: true }", "each instance_group is passive"),
    ('backend: "python" runtime: "model.py"', "the runtime 'model.py' is neither a file of the model nor that of"),
    ('backend: "python" runtime: "triton_python"', "the runtime 'triton_python' is neither a file of the model nor"),
    ('metric_tags { key: "my-team" value: "v" }', "metric_tags has the key 'my-team', which ends the server"),
    ('metric_tags { key: "_team" value: "v" }', "metric_tags has the key '_team'"),
    ('metric_tags { key: "é" value: "v" }', "metric_tags has the key 'é'"),
    ("max_batch_size: -1", "'max_batch_size' must be non-negative value"),
    (tensors(y='label_filename: "labels.txt"'), "label_filename 'labels.txt', which is no file"),
    (tensors(y=f'label_filename: "{"x" * 300}"'), "which is no file"),
    (batching("preferred_batch_size: [4, 8]"), "preferred_batch_size is 8, and max_batch_size is 4"),
    (batching("preferred_batch_size: 1", head=""), "preferred_batch_size is 1, and max_batch_size is 0"),
    (batching("preferred_batch_size: 0"), "preferred_batch_size is 0"),
    (batching("priority_levels: 2"), "default_priority_level is 0, and must be from 1 to 2"),
    (batching("priority_levels: 2 default_priority_level: 5"), "default_priority_level is 5"),
    (
        batching("priority_levels: 1 default_priority_level: 1 priority_queue_policy { key: 0 value {} }"),
        "priority_queue_policy has the level 0, and priority_levels is 1",
    ),
    (batching("priority_levels: 2 default_priority_level: 1 preserve_ordering: true"), "preserve_ordering excludes"),
    (
        batching(
            "preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }"
        ),
        "timeout_action: DELAY",
    ),
    ("instance_group { kind: KIND_CPU gpus: [0] }", "KIND_CPU and gpus"),
    ("instance_group { kind: KIND_MODEL gpus: [0] }", "KIND_MODEL and gpus"),
    ('backend: "python" instance_group { profile: "a" }', "which only TensorRT takes"),
    ("response_cache { enable: true } model_transaction_policy { decoupled: true }", "response_cache is enabled"),
    (sequences("oldest { preferred_batch_size: 8 }"), "preferred_batch_size is 8"),
    (sequences("direct { minimum_slot_utilization: 1.1 }"), "minimum_slot_utilization"),
    (sequences("direct { minimum_slot_utilization: -0.5 }"), "minimum_slot_utilization"),
    (controls(START % PAIR, name=""), "a control_input has no name"),
    (controls(START % "int32_false_true: 1"), "CONTROL_SEQUENCE_START needs two values in one of int32_false_true"),
    (controls(START % (PAIR + " fp32_false_true: [0, 1]")), "needs two values in one of"),
    (controls(END % ""), "CONTROL_SEQUENCE_END needs two values"),
    (controls(START % PAIR, START % PAIR), "two controls of CONTROL_SEQUENCE_START"),
    (
        sequences(f'control_input {{ name: "C" {START % PAIR} }} control_input {{ name: "C" {END % PAIR} }}'),
        "two of the control_input 'C'",
    ),
    (controls(CORRID % ""), "CONTROL_SEQUENCE_CORRID needs one of the types TYPE_UINT64"),
    (controls(CORRID % ("data_type: TYPE_UINT64 " + PAIR)), "and no values"),
    (initial(ZERO.replace('name: "i"', "")), "the initial_state of 'I' has no name"),
    (initial(ZERO.replace("FP32", "INT32")), "another data_type or other dims"),
    (initial(ZERO, dims="2"), "another data_type or other dims"),
    (initial(ZERO, dims="1, 1"), "another data_type or other dims"),
    (initial(ZERO.replace("[1]", "[-1]"), dims="-1"), "has variable dims"),
    (initial(ZERO.replace("zero_data: true", "")), "has no data"),
    (initial(ZERO.replace("zero_data: true", 'data_file: "/x"')), "reads initial_state//x, which does not exist"),
    (initial(ZERO + "} initial_state {" + ZERO), "is written 2 times"),
)
BATCH_INPUT = 'batch_input { target_name: "T" data_type: TYPE_FP32 source_input: "X" }'
BATCH_OUTPUT = 'batch_output { target_name: "Y" source_input: "X" }'
INCOMPLETE = (
    (tensors(x="format: FORMAT_NHWC"), "has a format, which needs 3 dims"),
    (tensors(x="format: FORMAT_NCHW", dims="1, 2, 3, 4"), "has a format, which needs 3 dims"),
    (tensors(x="is_shape_tensor: true"), "is_shape_tensor, which only TensorRT takes"),
    (tensors(y="is_non_linear_format_io: true"), "is_non_linear_format_io, which only TensorRT takes"),
    (BATCH_INPUT.replace('source_input: "X"', ""), "a batch_input has 0 names in source_input, and needs one"),
    (BATCH_INPUT.replace('"X"', '"Q"'), "a batch_input has the source_input 'Q', which the model does not declare"),
    (BATCH_INPUT.replace("FP32", "UINT8"), "the data_type TYPE_UINT8, and needs one of TYPE_INT32, TYPE_FP32"),
    (BATCH_OUTPUT.replace('"X"', '["X", "X"]'), "a batch_output has 2 names in source_input"),
    (BATCH_OUTPUT.replace('"Y"', '"Q"'), "the model does not declare the target_name 'Q'"),
    (BATCH_OUTPUT.replace('"Y"', '["Y", "Y"]'), "more than one batch_output has the target_name 'Y'"),
    (BATCH_OUTPUT.replace('target_name: "Y"', ""), "a batch_output has no target_name"),
)
COMPLETE = (
    tensors(x="format: FORMAT_NHWC", dims="1, 2, 3"),
    tensors(x="optional: true allow_ragged_batch: true"),
    tensors() + BATCH_INPUT.replace('target_name: "T"', "") + BATCH_OUTPUT,
)


@every_row(("text", "words"), REFUSED)
def test_what_a_server_refuses_however_the_configuration_is_completed(tmp_path, text, words):
    (fault,) = config_faults(parse_config(text, "config.pbtxt"), tmp_path, is_complete=False)
    assert words in fault


@every_row("text", LOADED)
def test_what_a_server_loads(tmp_path, text):
    assert list(config_faults(parse_config(text, "config.pbtxt"), tmp_path, is_complete=False)) == []


def test_files_that_a_configuration_names(tmp_path):
    (tmp_path / "labels.txt").touch()
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state/zeros").touch()
    state = initial(ZERO.replace("zero_data: true", 'data_file: "zeros"'))
    config = parse_config(tensors(y='label_filename: "/labels.txt"') + state, "config.pbtxt")
    assert list(config_faults(config, tmp_path, is_complete=False)) == []
    (tmp_path / "labels.txt").unlink()
    (tmp_path / "labels.txt").mkdir()  # it ends the server
    assert len(list(config_faults(config, tmp_path, is_complete=False))) == 1


@every_row(("text", "words"), INCOMPLETE)
def test_what_a_server_refuses_of_a_complete_configuration(text, words, tmp_path):
    text = text if "input {" in text and "batch" not in text else tensors() + text
    (fault,) = config_faults(parse_config(text, "config.pbtxt"), tmp_path, is_complete=True)
    assert words in fault


@every_row("text", COMPLETE)
def test_complete_configurations_that_a_server_loads(text, tmp_path):
    assert list(config_faults(parse_config(text, "config.pbtxt"), tmp_path, is_complete=True)) == []


SIZE = "has different size for dims and reshape"
COUNT = "has different number of variable-size dimensions for dims and reshape"


@every_row(
    ("dims", "shape", "fault"),
    [
        ([2, -1], [1, 2, -1], ""),
        ([-1], [1, -1], ""),
        ([-1, 1, 1], [-1], ""),
        ([2, -1, 3], [2, -1, 1, 3], ""),
        ([-1, 6, -1], [-1, 2, 3, -1], ""),
        ([2, 2], [4], ""),
        ([1, 1], [], ""),
        ([2, -1], [2, 2], SIZE),
        ([2, -1], [-1, 2], SIZE),
        ([-1], [-1, 2], SIZE),
        ([-1], [], SIZE),
        ([2, -1, 3], [6, -1], SIZE),
        ([-1, 6, -1], [-1, 3, -1, 2], SIZE),
        ([4], [-1, -1], SIZE),
        ([-1, -1], [-1], COUNT),
        ([2, -1], [2, -1, -1], COUNT),
        ([2], [2, 0], "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension"),
    ],
)
def test_a_reshape_keeps_what_is_around_each_variable_dimension(dims, shape, fault, tmp_path):
    text = f"{BATCHED}{tensors(x=f'reshape {{ shape: {shape} }}', dims=str(dims)[1:-1])}"
    found = list(config_faults(parse_config(text, "config.pbtxt"), tmp_path, is_complete=True))
    assert found == ([f"model input 'X' {fault}"] if fault else [])


# The last release that refuses a field, and the first that takes it, of those whose servers were tried.
LATER = (
    ("sequence_batching { oldest { preserve_ordering: true } }", "preserve_ordering", "23.07", "23.10"),
    ("sequence_batching { iterative_sequence: true }", "iterative_sequence", "23.10", "23.12"),
    ("sequence_batching { state [ { use_growable_memory: true } ] }", "use_growable_memory", "23.10", "23.12"),
    ('runtime: "x"', "runtime", "23.12", "24.01"),
    ("input [ { is_non_linear_format_io: true } ]", "is_non_linear_format_io", "24.07", "24.08"),
    ("model_metrics { }", "model_metrics", "24.10", "24.11"),
    ("ensemble_scheduling { max_inflight_requests: 2 }", "max_inflight_requests", "24.10", "25.11"),
)


@every_row(("text", "field", "refuses", "takes"), LATER)
def test_a_field_that_a_release_does_not_know_is_named_with_the_first_that_does(text, field, refuses, takes):
    config = parse_config(text, "config.pbtxt")
    ((what, fix),) = later_fields(config, refuses)
    says, _, since = what.partition(", which came with ")
    assert (says, since <= takes) == (f"Triton {refuses} does not know the field {field}", True)
    assert fix == f"remove it, or serve the model with Triton {since} or later"
    assert list(later_fields(config, takes)) == []


def test_maps_and_common_fields_belong_to_every_release():
    text = 'max_batch_size: 2 parameters { key: "A" value { string_value: "b" } } input [ { name: "X" } ]'
    assert list(later_fields(parse_config(text, "config.pbtxt"), "23.04")) == []
