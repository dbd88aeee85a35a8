"""triton_python_backend_utils of ours and the server's: the same names, results and errors."""

import copy
import importlib.util
import itertools
import json

import numpy as np
import pytest

from envpack import local
from envpack.server.launch import find_server
from envpack.support.errors import ServerError

OURS = f"{local.__path__[0]}/python/triton_python_backend_utils.py"
CONFIG = {
    "name": "m",
    "max_batch_size": 4,
    "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [4]}],
    "output": [{"name": "O", "data_type": "TYPE_FP32", "dims": [4]}],
}
TENSORS = [
    {"name": "I", "data_type": "TYPE_FP32", "dims": [4]},
    {"name": "O", "data_type": "TYPE_FP32", "dims": [4]},
    {"name": "I", "data_type": "TYPE_INT32", "dims": [4]},
    {"name": "O", "data_type": "TYPE_INT32", "dims": [4]},
    {"name": "I", "data_type": "TYPE_FP32", "dims": [5]},
    {"name": "O", "data_type": "TYPE_FP32", "dims": [5]},
    {"name": "N", "data_type": "TYPE_FP32", "dims": [5], "optional": True},
    {"name": "I", "data_type": "TYPE_FP32", "dims": [4], "optional": False},
    {"data_type": "TYPE_FP32", "dims": [5]},
    {"name": "N", "dims": [5]},
    {"name": "N", "data_type": "TYPE_FP32"},
    {"name": "N", "data_type": "TYPE_FP32", "dims": [5], "unknown": 1},
    {},
]
KNOWN = [
    [],
    [{"name": "I", "data_type": "TYPE_INVALID", "dims": []}],
    [{"name": "I", "data_type": "TYPE_FP32", "dims": [4], "optional": True}],
    [{"name": "I"}],
]
POLICIES = [{"decoupled": True}, {"decoupled": False}, {}, {"unknown": 1}, {"decoupled": True, "unknown": 1}]
ARRAYS = [
    np.array([], dtype=object),
    np.array([b"a", "é", None, 1.5], dtype=object),
    np.array([[b"a"], [b"bc"]]),
    np.array(["x"]),
    np.array([1]),
]
ENCODED = [b"", b"\1\0\0\0a", b"\1\0", b"\5\0\0\0a", np.frombuffer(b"\1\0\0\0\xff", dtype=np.uint8)]
TYPES = [np.bool_, bool, np.float32, np.object_, np.bytes_, np.dtype("f4"), np.dtype("S3"), str, np.uint64, np.int8]


def loaded(file):
    spec = importlib.util.spec_from_file_location("utilities", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def both():
    try:
        theirs = find_server().backends / "python/triton_python_backend_utils.py"
    except ServerError as error:
        pytest.skip(str(error))
    return loaded(OURS), loaded(theirs)


def outcome(function, *arguments):
    """What a call returns, or its error, in a form that can be compared."""
    try:
        return repr(function(*arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def configured(module, changed, method, *arguments):
    config = module.ModelConfig(json.dumps(copy.deepcopy(CONFIG) | changed))
    getattr(config, method)(*arguments)
    return config.as_dict()


def completions():
    """What auto_complete_config() can do: the changed configuration, a method, its arguments."""
    yield from (({}, "set_max_batch_size", size) for size in (2, 4, 8, 0))
    for scheduler in ("dynamic_batching", "sequence_batching", "ensemble_scheduling"):
        yield {scheduler: {}}, "set_dynamic_batching"
    yield {}, "set_dynamic_batching"
    for key, tensor in itertools.product(("input", "output"), TENSORS):
        yield {}, f"add_{key}", tensor
    for key, known in itertools.product(("input", "output"), KNOWN):
        yield {key: known}, f"add_{key}", TENSORS[0]
    for known, new in itertools.product((None, *POLICIES[:3]), POLICIES):
        yield {} if known is None else {"model_transaction_policy": known}, "set_model_transaction_policy", new


FUNCTIONS = [
    *(("using_decoupled_model_transaction_policy", {"model_transaction_policy": known}) for known in POLICIES[:3]),
    ("using_decoupled_model_transaction_policy", {}),
    *(("serialize_byte_tensor", array) for array in ARRAYS),
    *(("deserialize_bytes_tensor", encoded) for encoded in ENCODED[:2]),
    *(("numpy_to_triton_type", data_type) for data_type in TYPES),
    *(("triton_to_numpy_type", number) for number in range(16)),
    *(("triton_string_to_numpy", name) for name in ("TYPE_BOOL", "TYPE_FP16", "TYPE_STRING", "TYPE_BF16")),
    *(("get_input_config_by_name", CONFIG, name) for name in ("I", "O")),
    *(("get_output_config_by_name", CONFIG, name) for name in ("I", "O")),
]


def calls(module):
    """One outcome for each call."""
    yield from (outcome(configured, module, *completion) for completion in completions())
    yield from (outcome(getattr(module, name), *arguments) for name, *arguments in FUNCTIONS)
    yield repr(module.TRITON_STRING_TO_NUMPY)


def test_calls_end_alike(both):
    ours, theirs = (list(calls(module)) for module in both)
    assert ours == theirs


@pytest.mark.parametrize("encoded", ENCODED[2:4])
def test_damaged_strings_are_refused_alike(both, encoded):
    kinds = {outcome(module.deserialize_bytes_tensor, encoded).split(":")[0] for module in both}
    assert kinds == {"error"}


def test_names_are_the_same(both):
    ours, theirs = ({name for name in vars(module) if not name.startswith("_")} for module in both)
    assert ours == theirs
