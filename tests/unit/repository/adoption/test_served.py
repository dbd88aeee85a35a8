"""How the model.py that envpack writes turns answers into tensors."""

import sys
import types

import numpy as np
import pytest

from envpack.repository.adoption import answers
from tests.tables import every_row


@pytest.fixture
def to_array(monkeypatch):
    """The function of the module, with one of the backend's own that it uses."""
    backend = types.ModuleType("triton_python_backend_utils")
    backend.triton_string_to_numpy = {"TYPE_BOOL": np.bool_, "TYPE_INT32": np.int32, "TYPE_FP32": np.float32}.get
    monkeypatch.setitem(sys.modules, backend.__name__, backend)
    names = {}
    exec((answers._PROGRAM.parent / "served.py").read_text(), names)
    return names["to_array"]


@every_row(
    ("values", "datatype", "expected"),
    [
        (np.array([0, 1]), "TYPE_BOOL", [False, True]),
        (np.array([0.0, 1.0]), "TYPE_BOOL", [False, True]),
        (np.array([3.0, -1.0]), "TYPE_INT32", [3, -1]),
        (np.array([True, False]), "TYPE_INT32", [1, 0]),
        ([1, 2], "TYPE_FP32", [1.0, 2.0]),
    ],
)
def test_a_number_has_the_type_of_the_signature_if_it_fits(to_array, values, datatype, expected):
    assert to_array(values, datatype).tolist() == expected


@every_row(
    ("values", "datatype", "why"),
    [
        (np.array([1, 2]), "TYPE_BOOL", "the model answered 2, which does not fit into TYPE_BOOL"),
        (np.array([1.0, 1.5]), "TYPE_INT32", "the model answered 1.5, which does not fit into TYPE_INT32"),
        (np.array([1 << 40]), "TYPE_INT32", "the model answered 1099511627776, which does not fit into TYPE_INT32"),
        (np.array([1e300]), "TYPE_FP32", "the model answered 1e+300, which does not fit into TYPE_FP32"),
        (np.array(["1"]), "TYPE_INT32", "Cannot cast array data"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_any_other_is_an_error(to_array, values, datatype, why):
    with pytest.raises((OverflowError, TypeError), match=why.replace("+", r"\+")):
        to_array(values, datatype)
