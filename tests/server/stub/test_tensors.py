"""Tensors travel both ways unchanged, with either NumPy."""

import json

import pytest

from envpack.server.kserve import RequestError
from envpack.server.tensors import Tensor

VALUES = {
    "BOOL": (True, False, True),
    "UINT8": (0, 1, 2**8 - 1),
    "UINT16": (0, 1, 2**16 - 1),
    "UINT32": (0, 1, 2**32 - 1),
    "UINT64": (0, 1, 2**64 - 1),
    "INT8": (-(2**7), -1, 2**7 - 1),
    "INT16": (-(2**15), -1, 2**15 - 1),
    "INT32": (-(2**31), -1, 2**31 - 1),
    "INT64": (-(2**63), -1, 2**63 - 1),
    "FP16": (-65504.0, 2.0**-24, 0.5),
    "FP32": (-3.5, 2.0**-149, 3.4028234663852886e38),
    "FP64": (-0.1, 5e-324, 1.7976931348623157e308),
    "BYTES": ("größe ∑".encode(), b"", b"with\0nul and \xff\xfe"),
}
NUMPY_NAMES = {"FP16": "float16", "FP32": "float32", "FP64": "float64", "BYTES": "object"}


@pytest.fixture
def echo(served, numpy):
    """Sends tensors through the echo model; gives the outputs by name and what the model saw."""

    name = f"echo_numpy{numpy[0]}"
    assert name not in served.failures, served.failures[name]

    def send(*tensors, binary=None):
        outputs = {o.name: o for o in served.client.infer(name, tensors, binary=binary)}
        return outputs, json.loads(outputs.pop("SEEN").data[0])

    return send


@pytest.fixture
def run(served, numpy):
    """Runs code in the script model that has this NumPy."""

    def run(code, **options):
        return served.run(code, model=f"script_numpy{numpy[0]}", **options)

    return run


@pytest.fixture
def made(run):
    """The output made from an expression for an array."""
    return lambda expression, **options: run(f"return [respond({expression})]", **options)["OUT"]


def test_the_model_runs_with_the_python_and_numpy_of_its_environment(served, servers, python, numpy):
    facts = served.evaluate("[sys.version.split()[0], np.__version__, sys.prefix]", model=f"script_numpy{numpy[0]}")
    assert facts[0].startswith(python + ".")
    assert facts[1] == numpy
    assert facts[2] == str(servers.model_environments.environment(python, numpy))


def test_extreme_values_of_every_type_come_back_from_one_request(echo):
    sent = [Tensor(name, name, (1, 3), values) for name, values in VALUES.items()]
    outputs, seen = echo(*sent, binary=True)
    assert outputs == {f"OUT_{name}": Tensor(f"OUT_{name}", name, (1, 3), values) for name, values in VALUES.items()}
    assert seen == {name: [NUMPY_NAMES.get(name, name.lower()), [1, 3], True] for name in VALUES}


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_tensor_keeps_its_shape(echo, shape):
    names = ("FP32", "BYTES", "INT64")
    outputs, seen = echo(*(Tensor(name, name, shape, ()) for name in names), binary=True)
    assert [(outputs[f"OUT_{name}"].shape, outputs[f"OUT_{name}"].data) for name in names] == [(shape, ())] * 3
    assert [seen[name][1] for name in names] == [list(shape)] * 3


def test_a_scalar_has_no_dimensions(made):
    """Only outputs: the server refuses scalar inputs."""
    scalar = made("np.array(7, dtype=np.int32)")
    assert (scalar.shape, scalar.data) == ((), (7,))


def test_bf16_input_cannot_become_an_array(echo):
    with pytest.raises(RequestError, match="Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack"):
        echo(Tensor("BF16", "BF16", (1, 2), (1.0, 2.0)), binary=True)


@pytest.mark.parametrize(
    "array",
    [
        "np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3))",
        "np.arange(6, dtype=np.int32).reshape(3, 2).T.copy().T.reshape(2, 3)",
        "np.arange(12, dtype=np.int32).reshape(2, 6)[:, ::2] // 2",
        "np.arange(12, dtype=np.int32)[::2].reshape(2, 3) // 2",
        "np.arange(5, -1, -1, dtype=np.int32)[::-1].reshape(2, 3)",
        "np.broadcast_to(np.arange(3, dtype=np.int32), (2, 3)) + np.array([[0], [3]], dtype=np.int32)",
    ],
)
def test_elements_leave_in_c_order(made, array):
    assert made(array).data == (0, 1, 2, 3, 4, 5)
    assert made(array).shape == (2, 3)


def test_arrays_that_are_no_c_order_in_memory(made):
    assert made("np.arange(6, dtype=np.int64).reshape(2, 3).T").data == (0, 3, 1, 4, 2, 5)
    assert made("np.arange(6, dtype=np.float32)[::-1]").data == (5.0, 4.0, 3.0, 2.0, 1.0, 0.0)
    assert made("np.broadcast_to(np.float64(2), (2, 2))").data == (2.0,) * 4
    assert made("np.array([b'a', b'b', b'c', b'd'], dtype=object).reshape(2, 2).T").data == (b"a", b"c", b"b", b"d")
    assert made("np.array([b'a', b'bc', b'c'], dtype='S2')[::-1]").data == (b"c", b"bc", b"a")


def test_data_behind_a_name_of_odd_length(run):
    for name in ("OUT", "OTHER"):
        code = f"return [respond(np.array([1.5, -2.5]), name={name!r})]"
        assert run(code)[name].data == (1.5, -2.5)


@pytest.mark.parametrize(
    ("array", "elements"),
    [
        ("np.array(['größe', '', 'a\\0b'], dtype=object)", ("größe".encode(), b"", b"a\0b")),
        ("np.array([b'x', 'y', 3, 2.5, None], dtype=object)", (b"x", b"y", b"3", b"2.5", b"None")),
        ("np.array([b'ab', b'', b'c'], dtype='S5')", (b"ab", b"", b"c")),
        ("np.array([b'a\\0b'], dtype='S4')", (b"a\0b",)),
        ("np.empty(2, dtype=object)", (b"None", b"None")),
        ("np.array([], dtype=object)", ()),
        ("np.array([], dtype='S3')", ()),
    ],
)
def test_strings_of_every_kind_become_bytes(made, array, elements):
    output = made(array, binary=True)
    assert (output.datatype, output.data) == ("BYTES", elements)


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        ("np.array(['text'])", "<U4. Convert strings with astype(object)."),
        ("np.array([1j])", "complex128."),
        ("np.array([1], '>i4')", ">i4."),
        ("np.array(['2020'], 'M8[D]')", "datetime64[D]."),
    ],
)
def test_a_type_that_triton_does_not_have_is_refused(served, numpy, array, dtype):
    refusal = served.refusal(f"return [respond({array})]", model=f"script_numpy{numpy[0]}")
    assert f"TritonModelException: NumPy dtype is not supported. Tensor 'OUT' has the dtype {dtype}" in refusal.message


def test_strings_of_fixed_and_of_any_length_are_refused_with_what_to_do(served, numpy):
    dtype = "'U4'" if numpy[0] == "1" else "np.dtypes.StringDType()"  # which NumPy 1 does not have
    refusal = served.refusal(f"return [respond(np.array(['text'], {dtype}))]", model=f"script_numpy{numpy[0]}")
    assert "Convert strings with astype(object)." in refusal.message


@pytest.mark.parametrize("call", ["pb_utils.Tensor", "pb_utils.Tensor.from_dlpack"])
def test_masked_values_are_refused(served, numpy, call):
    code = (
        "import numpy.ma\n"
        "array = numpy.ma.masked_array([1, 2], mask=[{}, False])\n"
        f"return [pb_utils.InferenceResponse([{call}('OUT', array)])]"
    )
    model = f"script_numpy{numpy[0]}"
    refusal = served.refusal(code.format(True), model=model)
    assert "Tensor 'OUT' has masked values, which Triton does not know. Replace them with filled()." in refusal.message
    if call == "pb_utils.Tensor":
        assert served.run(code.format(False), model=model)["OUT"].data == (1, 2)


def test_native_types_under_another_name(made):
    assert made("np.array([1, 2], dtype=np.longlong)").datatype == "INT64"
    assert made("np.array([1, 2], dtype='<i4')").datatype == "INT32"
    assert made("np.array([1, 2], dtype=np.intc)").datatype == "INT32"


def test_twenty_megabytes_in_and_out_make_the_region_grow(run, served, numpy):
    """The server grows it for the input, the stub for the output."""
    sent = Tensor("X", "FP32", (5000000,), (0.5, 1.5, 2.5, 3.5, 4.5) * 1000000)
    code = 'x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()\nreturn [respond(x[::-1] * 2)]'
    output = run(code, inputs=[sent], binary=True)["OUT"]
    assert output.shape == (5000000,)
    assert output.data == (9.0, 7.0, 5.0, 3.0, 1.0) * 1000000
    free = served.evaluate("c_python_backend_utils.shared_memory.free_memory()", model=f"script_numpy{numpy[0]}")
    assert free > 40_000_000


def test_nothing_of_the_region_is_lost_over_many_requests(served, numpy):
    model = f"script_numpy{numpy[0]}"

    def one_round():
        served.run("return [respond(np.zeros((3, 5)))]", model=model)
        served.run("return [respond(np.array(['a', 'b'], dtype=object))]", model=model)
        served.refusal("return [respond(np.zeros(3), error=pb_utils.TritonError('no'))]", model=model)
        served.refusal("raise ValueError('no')", model=model)
        served.refusal("return []", model=model)

    one_round()
    before = served.free(model)
    for _ in range(20):
        one_round()
    assert served.frees_all_again(before, model)


def test_an_input_may_be_changed_and_kept(run):
    code = (
        'x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()\n'
        "x += 1\n"
        "self.kept = x\n"
        "assert request.inputs()[1].as_numpy() is x or request.inputs()[0].as_numpy() is x\n"
        "return [respond(x)]"
    )
    assert run(code, inputs=[Tensor("X", "FP32", (3,), (1.0, 2.0, 3.0))])["OUT"].data == (2.0, 3.0, 4.0)
    run("return [respond(np.ones(100000))]", binary=True)
    assert run("return [respond(self.kept)]")["OUT"].data == (2.0, 3.0, 4.0)


class TestEmpty:
    """Tensor.empty: outputs that are computed where they are sent from."""

    def test_what_is_written_into_it_is_sent(self, served):
        code = (
            "t = pb_utils.Tensor.empty('OUT', [2, 3], np.float32)\n"
            "t.as_numpy()[:] = np.arange(6).reshape(2, 3)\n"
            "return [pb_utils.InferenceResponse([t])]"
        )
        output = served.run(code)["OUT"]
        assert (output.shape, list(output.data)) == ((2, 3), [0, 1, 2, 3, 4, 5])

    def test_it_lies_in_the_region_as_long_as_it_lives(self, served):
        code = (
            "free = c_python_backend_utils.shared_memory.free_memory\n"
            "before = free()\n"
            "t = pb_utils.Tensor.empty('OUT', [1000], 'float64')\n"
            "array = t.as_numpy()\n"
            "taken = before - free()\n"
            "del t\n"
            "still = before - free()\n"
            "array[-1] = 1.5\n"
            "facts = [array.flags.writeable, array.flags.aligned, array.dtype.name, array[-1]]\n"
            "del array\n"
            "return [reply([taken >= 8000, still >= 8000, abs(before - free()) < 96, facts])]"
        )
        assert served.run_code(code) == [True, True, True, [True, True, "float64", 1.5]]

    def test_a_sender_and_another_model_take_it_too(self, served):
        inner = "return [reply(pb_utils.get_input_tensor_by_name(request, 'X').as_numpy().tolist())]"
        code = (
            "x = pb_utils.Tensor.empty('X', [3], np.float32)\n"
            "x.as_numpy()[:] = [1, 2, 3]\n"
            f"r = pb_utils.InferenceRequest(model_name='customized', requested_output_names=['OUT'],"
            f" inputs=[bls_call('x', {inner!r}).inputs()[0], x])\n"
            "answer = pb_utils.Tensor.empty('OUT', (3,), np.int64)\n"
            "answer.as_numpy()[:] = fetch(r.exec())\n"
            "request.get_response_sender().send(pb_utils.InferenceResponse([answer]), flags=1)\n"
            "return None"
        )
        assert list(served.run(code)["OUT"].data) == [1, 2, 3]

    def test_the_region_grows_for_it(self, served):
        code = (
            "t = pb_utils.Tensor.empty('OUT', [4000000], np.float32)\n"
            "t.as_numpy()[:] = 7\n"
            "return [pb_utils.InferenceResponse([t])]"
        )
        assert set(served.run(code, binary=True)["OUT"].data) == {7.0}

    @pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16"])
    def test_shapes_and_types(self, served, dtype):
        code = (
            f"t = pb_utils.Tensor.empty('T', [2, 0, 5], {dtype!r})\n"
            f"u = pb_utils.Tensor.empty('T', [], {dtype!r})\n"
            "return [reply([t.shape(), t.as_numpy().dtype.name, u.shape(), u.as_numpy().size])]"
        )
        assert served.run_code(code) == [[2, 0, 5], dtype, [], 1]

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ("'', [1], np.int8", "Tensor name cannot be an empty string."),
            ("'T', [-1], np.int8", "A tensor cannot have a dimension of -1."),
            ("'T', [1], np.complex64", "NumPy dtype is not supported. Tensor 'T' has the dtype complex64."),
            ("'T', [1], object", "A BYTES tensor has no fixed size; create it from an array."),
        ],
    )
    def test_what_cannot_be_is_refused(self, served, arguments, text):
        code = (
            f"try:\n    pb_utils.Tensor.empty({arguments})\n"
            "except pb_utils.TritonModelException as error:\n    return [reply(str(error))]"
        )
        assert served.run_code(code) == text
