"""`envpack inspect` finds an error in exactly the models that the real server refuses to load."""

import struct

import pytest

from envpack.inspection.repository import inspect_repository
from envpack.server.kserve import Client, RequestError
from envpack.server.process import ProcessRuntime
from envpack.settings.project import Project
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE

CODE = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        read = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", array)]) for array in read]
"""
COMPLETES = f"{CODE}\n    @staticmethod\n    def auto_complete_config(config):\n        return config\n"
HANGS = 15  # seconds; some releases wait for ever for a version without code
PYTHON, ENSEMBLE = 'backend: "python"\n', 'platform: "ensemble"\n'


def tensors(dims="1", kind="FP32"):
    return "".join(
        f'{way} {{ name: "{name}" data_type: TYPE_{kind} dims: [{dims}] }}\n'
        for way, name in (("input", "X"), ("output", "Y"))
    )


def step(model="good", inputs="X:X", outputs="Y:Y", version="model_version: -1"):
    maps = "".join(
        f' {way} {{ key: "{own}" value: "{tensor}" }}'
        for way, pairs in (("input_map", inputs), ("output_map", outputs))
        for own, tensor in (pair.split(":") for pair in pairs.split())
    )
    return f'{{ model_name: "{model}" {version}{maps} }}'


def ensemble(*steps, head=""):
    return f"{head or ENSEMBLE + tensors()}ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n"


def warmup(value, name="X", *, dims="1", declared="1", kind="FP32", batch=1, head=""):
    values = f'key: "{name}" value {{ dims: [{dims}] {value} }}'
    sample = f'model_warmup {{ name: "w" batch_size: {batch} inputs {{ {values} }} }}\n'
    return PYTHON + head + tensors(declared, kind) + sample


def warm_data(kind="FP32", **options):
    return warmup(f'data_type: TYPE_{kind} input_data_file: "data"', kind=kind, **options)


def strings(*values):
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


ZEROS = "data_type: TYPE_FP32 zero_data: true"
RESHAPED = tensors().replace("dims: [1]", "dims: [1] reshape { shape: [1, 1] }")
PASSED_ON = 'output { name: "X" dims: [%d] data_type: TYPE_%s }\n'
PASSED = ' { name: "W" dims: [1] data_type: TYPE_FP32 }\n'


MODELS = {
    "good": PYTHON + tensors(),
    "rank2": PYTHON + tensors("1, 1"),
    "size2": PYTHON + tensors("2"),
    "any_size": PYTHON + tensors("-1"),
    "whole": PYTHON + tensors(kind="INT32"),
    "batching": PYTHON + tensors() + "max_batch_size: 4\n",
    "twice": PYTHON + tensors() + tensors(),
    "platform_python": 'platform: "python"\n' + tensors(),
    "backend_decides": PYTHON + 'platform: "onnxruntime_onnx"\n' + tensors(),
    "no_backend": tensors(),
    "no_dims": PYTHON + 'input { name: "X" data_type: TYPE_FP32 }\n',
    "no_type": PYTHON + 'input { name: "X" dims: [1] }\n',
    "size0": PYTHON + tensors("0"),
    "negative_batch": PYTHON + tensors() + "max_batch_size: -1\n",
    "no_such_version": PYTHON + tensors() + "version_policy { specific { versions: [7] } }\n",
    "warm": warmup("data_type: TYPE_FP32 zero_data: true"),
    "warm_file": warmup('data_type: TYPE_FP32 input_data_file: "none"'),
    "warm_type": warmup("data_type: TYPE_INT8 zero_data: true"),
    "warm_input": warmup(ZEROS, "Z"),
    "warm_input_not_declared": warmup(f'{ZEROS} }} }} inputs {{ key: "Q" value {{ dims: [1] {ZEROS}'),
    "warm_not_sent": warmup('data_type: TYPE_INT8 input_data_file: "none"', batch=0),
    "warm_no_data": warmup("data_type: TYPE_FP32"),
    "warm_size": warmup(ZEROS, dims="3", declared="2"),
    "warm_rank": warmup(ZEROS, dims="1, 2", declared="2"),
    "warm_any_size": warmup(ZEROS, dims="3", declared="-1"),
    "warm_left_any": warmup(ZEROS, dims="-1", declared="-1"),
    "warm_nothing": warmup(ZEROS, dims="0", declared="-1"),
    "warm_batch": warmup(ZEROS, batch=4, head="max_batch_size: 4\n"),
    "warm_batch_none": warmup(ZEROS, batch=0, head="max_batch_size: 4\n"),
    "warm_batch_large": warmup(ZEROS, batch=5, head="max_batch_size: 4\n"),
    "warm_batch_unbatched": warmup(ZEROS, batch=2),
    "warm_absolute": warmup('data_type: TYPE_FP32 input_data_file: "/etc/passwd"'),
    "warm_exact": warm_data(dims="2", declared="2"),
    "warm_short": warm_data(dims="2", declared="2"),
    "warm_long": warm_data(dims="2", declared="2"),
    "warm_batch_short": warm_data(dims="2", declared="2", batch=2, head="max_batch_size: 4\n"),
    "warm_batch_exact": warm_data(dims="2", declared="2", batch=2, head="max_batch_size: 4\n"),
    "warm_halves": warm_data("BF16", dims="3", declared="3"),
    "warm_strings": warm_data("STRING", dims="2", declared="2"),
    "warm_few_strings": warm_data("STRING", dims="2", declared="2"),
    "warm_many_strings": warm_data("STRING", dims="2", declared="2"),
    "warm_plain_string": warm_data("STRING", dims="1", declared="1"),
    "e_good": ensemble(step()),
    "e_chain": ensemble(step(outputs="Y:T"), step(inputs="X:T")),
    "e_of_ensemble": ensemble(step("e_chain", version="model_version: 1")),
    "e_any_size": ensemble(step("any_size")),
    "e_batching": ensemble(step("batching")),
    "e_batch": ensemble(step("batching"), head=ENSEMBLE + tensors() + "max_batch_size: 4\n"),
    "e_batch_of_one": ensemble(step(), head=ENSEMBLE + tensors() + "max_batch_size: 4\n"),
    "e_larger_batch": ensemble(step("batching"), head=ENSEMBLE + tensors() + "max_batch_size: 8\n"),
    "e_no_version": ensemble(step(version="")),
    "e_version7": ensemble(step(version="model_version: 7")),
    "e_no_steps": ENSEMBLE + tensors(),
    "e_no_platform": ensemble(step(), head=tensors()),
    "e_backend": ensemble(step(), head=ENSEMBLE + PYTHON + tensors()),
    "e_instances": ensemble(step()) + "instance_group { count: 1 kind: KIND_CPU }\n",
    "e_warm_up": ensemble(step())
    + 'model_warmup { name: "w" batch_size: 1 inputs { key: "X" value { dims: [1] %s } } }' % ZEROS,
    "e_optimization": ensemble(step()) + "optimization { }\n",
    "e_version_before": ensemble(step(version="model_version: -2")),
    "e_reshape": ensemble(step("rank2"), head=ENSEMBLE + RESHAPED),
    "e_reshape_other": ensemble(step(), head=ENSEMBLE + RESHAPED),
    "e_passed_on": ensemble(step(), head=ENSEMBLE + tensors() + PASSED_ON % (1, "FP32")),
    "e_passed_on_other": ensemble(step(), head=ENSEMBLE + tensors() + PASSED_ON % (2, "INT8")),
    "e_passed_on_alone": ensemble(step(), head=ENSEMBLE + tensors() + "input" + PASSED + "output" + PASSED),
    "e_no_name": ensemble(step("")),
    "e_no_input_map": ensemble(step(inputs="")),
    "e_no_output_map": ensemble(step(outputs="")),
    "e_missing": ensemble(step("missing")),
    "e_not_written": ensemble(step(inputs="X:Q")),
    "e_not_declared": ensemble(step(inputs="Q:X")),
    "e_output_not_declared": ensemble(step(outputs="Q:Y")),
    "e_output_not_written": ensemble(step(outputs="Y:Q")),
    "e_unused": ensemble(step(), step(outputs="Y:T")),
    "e_written_twice": ensemble(step(), step()),
    "e_circle": ensemble(step(inputs="X:T"), step(inputs="X:Y", outputs="Y:T")),
    "e_rank": ensemble(step("rank2")),
    "e_size": ensemble(step("size2")),
    "e_type": ensemble(step("whole")),
    "e_inner_type": ensemble(step(outputs="Y:T"), step("whole", inputs="X:T")),
    "f_no_versions": ensemble(step()),
}
BATCHED = PYTHON + tensors() + "max_batch_size: 4\n"
CONTROL = 'control_input { name: "C" control { kind: CONTROL_SEQUENCE_START %s } }'
STATE = 'state { input_name: "I" output_name: "O" data_type: TYPE_FP32 dims: [1] initial_state { %s } }'


def batching(text, head=BATCHED):
    return f"{head}dynamic_batching {{ {text} }}\n"


def sequences(text):
    return f"{BATCHED}sequence_batching {{ {text} }}\n"


# Of a name that begins with c_, the model's code may complete the configuration.
MODELS |= {
    "latest": PYTHON + tensors() + "version_policy { latest { } }\n",
    "latest0": PYTHON + tensors() + "version_policy { latest { num_versions: 0 } }\n",
    "c_no_such_version": PYTHON + tensors() + "version_policy { specific { versions: [5] } }\n",
    "label": PYTHON + tensors().replace("output {", 'output { label_filename: "labels.txt"'),
    "label_file": PYTHON + tensors().replace("output {", 'output { label_filename: "/labels.txt"'),
    "c_label": PYTHON + tensors().replace("output {", 'output { label_filename: "labels.txt"'),
    "preferred": batching("preferred_batch_size: 4"),
    "preferred_large": batching("preferred_batch_size: 8"),
    "preferred_none": batching("preferred_batch_size: 0"),
    "preferred_unbatched": batching("preferred_batch_size: 1", PYTHON + tensors()),
    "c_preferred_unbatched": batching("preferred_batch_size: 8", PYTHON + tensors()),
    "unbatched": batching("", PYTHON + tensors()),
    "priority": batching("priority_levels: 2 default_priority_level: 2"),
    "priority_large": batching("priority_levels: 2 default_priority_level: 5"),
    "priority_none": batching("priority_levels: 2"),
    "priority_ordered": batching("priority_levels: 2 default_priority_level: 1 preserve_ordering: true"),
    "priority_policy": batching(
        "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } }"
    ),
    "ordered_delay": batching("preserve_ordering: true default_queue_policy { timeout_action: DELAY }"),
    "ordered_later": batching(
        "preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }"
    ),
    "no_instances": PYTHON + tensors() + "instance_group { count: -1 kind: KIND_CPU }\n",
    "cpu_gpus": PYTHON + tensors() + "instance_group { kind: KIND_CPU gpus: [0] }\n",
    "c_cpu_gpus": PYTHON + tensors() + "instance_group { kind: KIND_CPU gpus: [0] }\n",
    "model_gpus": PYTHON + tensors() + "instance_group { kind: KIND_MODEL gpus: [0] }\n",
    "profile": PYTHON + tensors() + 'instance_group { kind: KIND_CPU profile: "a" }\n',
    "cache": PYTHON + tensors() + "response_cache { enable: true }\n",
    "cache_stream": PYTHON
    + tensors()
    + "response_cache { enable: true } model_transaction_policy { decoupled: true }\n",
    "sequence": sequences("oldest { max_candidate_sequences: 4 preferred_batch_size: 4 }"),
    "sequence_large": sequences("oldest { max_candidate_sequences: 4 preferred_batch_size: 8 }"),
    "sequence_slots": sequences("direct { minimum_slot_utilization: 1.1 }"),
    "control": sequences(CONTROL % "int32_false_true: [0, 1]"),
    "control_one": sequences(CONTROL % "int32_false_true: 1"),
    "control_none": sequences(CONTROL % ""),
    "control_twice": sequences((CONTROL % "int32_false_true: [0, 1]") * 2),
    "state": sequences(STATE % 'name: "i" data_type: TYPE_FP32 dims: [1] zero_data: true'),
    "state_no_name": sequences(STATE % "data_type: TYPE_FP32 dims: [1] zero_data: true"),
    "state_type": sequences(STATE % 'name: "i" data_type: TYPE_INT32 dims: [1] zero_data: true'),
    "state_size": sequences(STATE % 'name: "i" data_type: TYPE_FP32 dims: [2] zero_data: true'),
    "state_file": sequences(STATE % 'name: "i" data_type: TYPE_FP32 dims: [1] data_file: "none"'),
    "image": PYTHON + tensors("1, 2, 3").replace("input {", "input { format: FORMAT_NHWC"),
    "image_rank": PYTHON + tensors().replace("input {", "input { format: FORMAT_NHWC"),
    "shape_tensor": PYTHON + tensors().replace("input {", "input { is_shape_tensor: true"),
    "batch_input": BATCHED + 'batch_input { target_name: "T" data_type: TYPE_FP32 source_input: "X" }\n',
    "batch_input_none": BATCHED + 'batch_input { target_name: "T" data_type: TYPE_FP32 }\n',
    "batch_input_type": BATCHED + 'batch_input { target_name: "T" data_type: TYPE_UINT8 source_input: "X" }\n',
    "batch_output": BATCHED + 'batch_output { target_name: "Y" source_input: "X" }\n',
    "batch_output_other": BATCHED + 'batch_output { target_name: "Q" source_input: "X" }\n',
    "file_absolute": PYTHON + tensors() + 'default_model_filename: "/model.py"\n',
    "file_text": PYTHON + tensors() + 'default_model_filename: "net.txt"\n',
    "file_dots": PYTHON + tensors() + 'default_model_filename: "my.net.py"\n',
    "file_dash": PYTHON + tensors() + 'default_model_filename: "my-net.py"\n',
    "runtime": PYTHON + tensors() + 'runtime: "libtriton_python.so"\n',
    "runtime_dot": PYTHON + tensors() + 'runtime: "./libtriton_python.so"\n',
    "runtime_code": PYTHON + tensors() + 'runtime: "model.py"\n',
    "runtime_other": PYTHON + tensors() + 'runtime: "libtriton_onnxruntime.so"\n',
    "runtime_no_backend": tensors() + 'runtime: "libtriton_onnxruntime.so"\n',
    "runtime_case": PYTHON + tensors() + 'runtime: "LIBTRITON_PYTHON.so"\n',
    "file_dot": PYTHON + tensors() + 'default_model_filename: "./model.py"\n',
}
# Texts that protobuf's parsers in C++ and Python read differently.
BLANKS = {
    "no_break": "\u00a0",
    "next_line": "\u0085",
    "unit": "\x1f",
    "vertical_tab": "\v",
    "form_feed": "\f",
    "return": "\r",
}
NUMBERS = (
    "8",
    "0x8",
    "010",
    "1_0",
    "+8",
    "0b11",
    "0o17",
    "\u0668",
    "8.0",
    "8e0",
    "08",
    "8;",
    "8,",
    "- 0",
    "8 # \u00a0 8",
)
MODELS |= {f"blank_{name}": PYTHON + tensors() + f"max_batch_size:{blank}8\n" for name, blank in BLANKS.items()}
MODELS |= {f"number{index}": PYTHON + tensors() + f"max_batch_size: {text}\n" for index, text in enumerate(NUMBERS)}
MODELS |= {
    "sign_spaced": PYTHON + tensors("- 1"),
    "text_null": PYTHON + tensors() + 'parameters { key: "a\0b" value { string_value: "x" } }\n',
    "text_tab": PYTHON + tensors() + 'parameters { key: "a\tb" value { string_value: "x" } }\n',
    "text_control": PYTHON + tensors() + 'parameters { key: "a\x1fb" value { string_value: "x\u00a0" } }\n',
    "text_marked": "\ufeff" + PYTHON + tensors(),
    "text_in_parts": PYTHON + tensors() + """parameters { key: 'a' "b" value { string_value: "x" 'y' } }\n""",
}


# Versions beside that with the code, each with what is in its folder.
VERSIONS = {
    "1_old": "model.py",
    "1_empty": "",
    "2_old": "model.py",
    "2": "",
    "02": "",
    "_2": "",
}
MODELS |= {f"v_{name}": PYTHON + tensors() for name in VERSIONS}
MODELS |= {
    "w_of_two": PYTHON + tensors(),
    "w_all": PYTHON + tensors() + "version_policy { all {} }\n",
    "w_second": PYTHON + tensors() + "version_policy { specific { versions: [2] } }\n",
    "e_2_old": ensemble(step()),
}


# The file "data" of the warm-ups that read it.
DATA = {
    "warm_exact": bytes(8),
    "warm_short": bytes(7),
    "warm_long": bytes(9),
    "warm_batch_short": bytes(7),
    "warm_batch_exact": bytes(8),
    "warm_halves": bytes(5),
    "warm_strings": strings(b"", b"ab"),
    "warm_few_strings": strings(b"ab"),
    "warm_many_strings": strings(b"", b"ab", b""),
    "warm_plain_string": b"hello",
}


@pytest.fixture
def repository(environment, tmp_path):
    parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n'
    for name, config in MODELS.items():
        folder = tmp_path / "models" / name
        (folder if name == "f_no_versions" else folder / "1").mkdir(parents=True)
        is_ensemble = name.startswith(("e_", "f_"))
        (folder / "config.pbtxt").write_text(config if is_ensemble else config + parameter)
        if not is_ensemble:
            (folder / "1/model.py").write_text(COMPLETES if name.startswith("c_") else CODE)
        if name.startswith("w_"):  # the first version has no code
            (folder / "1").rename(folder / "2")
            (folder / "1").mkdir()
    (tmp_path / "models/e_2_old/2_old").mkdir()
    for name, content in VERSIONS.items():
        (tmp_path / "models" / f"v_{name}" / name).mkdir()
        if content:
            (tmp_path / "models" / f"v_{name}" / name / content).write_text(CODE)
    (tmp_path / "models/label_file/labels.txt").touch()
    for name in ("text/1/net.txt", "dots/1/my.net.py", "dash/1/my-net.py"):
        (tmp_path / f"models/file_{name}").write_text(CODE)
    for name, data in DATA.items():
        (tmp_path / "models" / name / "warmup").mkdir()
        (tmp_path / "models" / name / "warmup/data").write_bytes(data)
    return tmp_path / "models"


def refused_by(server, repository, names):
    """The models that a server refuses to load; a warm-up that it refuses may end a server of Triton 24.10 later."""
    left, refused = list(names), set()
    while left:
        with ProcessRuntime(server).start(repository) as running:
            client = Client(running.url, timeout=30)
            first = left[0]
            while left and not running.ended():
                name = left.pop(0)
                try:
                    client.load(name, timeout=HANGS)
                    client.unload(name)
                except RequestError as error:
                    if running.ended() and name != first:
                        left.insert(0, name)  # an earlier model may have ended the server
                    else:
                        refused.add(name)
                    if error.timed_out:
                        break  # it holds one of the few threads that load
            running.stop(force=True)
    return refused


@pytest.mark.thorough
@pytest.mark.parametrize("warm", [False, True], ids=["others", "warm-ups"])
def test_inspect_refuses_what_the_server_refuses(server, repository, warm):
    found = inspect_repository(Project(repository=repository), find_release(DEFAULT_RELEASE)).findings
    names = [name for name in MODELS if name.startswith("warm") == warm]
    wrong = {finding.where.relative_to(repository).parts[0] for finding in found if finding.severity == "error"}
    refused = refused_by(server, repository, names)
    assert wrong.intersection(names) == refused
    served = {"good", "e_good", "twice", "e_batch_of_one", "warm_long", "warm_strings", "warm_batch", "warm_nothing"}
    served |= {"v_1_old", "v_1_empty", "w_of_two", "w_second", "file_dash", "image", "batch_input"}
    served |= {"label_file", "preferred", "priority", "cache", "sequence", "control", "state"}
    assert served.isdisjoint(refused)
