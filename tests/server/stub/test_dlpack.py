"""Tensors that are shared with other libraries by DLPack, in host memory."""

import json

import pytest

from envpack.server.tensors import Tensor

SHARE = "X = request.inputs()[1]\n"
X = Tensor("X", "FP32", (3,), (0.0, 1.0, 2.0))
NOT_CONTIGUOUS = "DLPack tensor is not contiguous. Only contiguous DLPack"
NEEDS_NUMPY_1_22 = pytest.mark.since("3.8")  # the first that exchanges arrays by DLPack
# Reads a capsule's record by hand, for what NumPy has no words for.
RECORD = """
import ctypes
class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]
class Managed(ctypes.Structure):
    _fields_ = [("view", View), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]
api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
def record_of(capsule):
    return Managed.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
deleted = []
def capsule_of(array, shape, strides=None, code=2, bits=32, device=1, lanes=1):
    record = Managed()
    n = len(shape)
    record.keep = (array, (ctypes.c_int64 * n)(*shape), (ctypes.c_int64 * n)(*(strides or [0] * n)))
    record.view = View(array.ctypes.data, device, 0, n, code, bits, lanes,
                       ctypes.cast(record.keep[1], ctypes.POINTER(ctypes.c_int64)),
                       ctypes.cast(record.keep[2] if strides else None, ctypes.POINTER(ctypes.c_int64)), 0)
    record.deleter = type(record.deleter)(lambda pointer: deleted.append(pointer))
    self.records = getattr(self, "records", []) + [record]
    return api.PyCapsule_New(ctypes.addressof(record), b"dltensor", None)
"""


def fetch(served, what):
    code = RECORD + f"try:\n    {what}\nexcept pb_utils.TritonModelException as error:\n    return [reply(str(error))]"
    return served.run_code(code)


class TestExport:
    @NEEDS_NUMPY_1_22
    def test_numpy_reads_an_input_without_a_copy(self, served):
        code = (
            SHARE + "view = np.from_dlpack(X)\n"
            "first = view.tolist()\n"
            "again = np.from_dlpack(X)\n"
            "return [reply([first, view.ctypes.data == again.ctypes.data, view.base is not None])]"
        )
        assert json.loads(served.run(code, inputs=[X])["OUT"].data[0]) == [[0, 1, 2], True, True]

    @NEEDS_NUMPY_1_22
    def test_the_views_memory_outlives_the_tensor(self, served):
        code = (
            "import gc\n"
            "view = np.from_dlpack(pb_utils.Tensor('T', np.arange(100000)))\n"
            "gc.collect()\n"
            "return [reply(int(view.sum()))]"
        )
        assert served.run_code(code) == 4999950000

    @NEEDS_NUMPY_1_22
    def test_a_capsule_holds_one_reference(self, served):
        code = (
            "import sys\n"
            "t = pb_utils.Tensor('T', np.arange(4))\n"
            "counts = [sys.getrefcount(t)]\n"
            "capsule = t.to_dlpack()\n"
            "counts.append(sys.getrefcount(t))\n"
            "del capsule\n"
            "counts.append(sys.getrefcount(t))\n"
            "view = np.from_dlpack(t)\n"
            "counts.append(sys.getrefcount(t))\n"
            "del view\n"
            "counts.append(sys.getrefcount(t))\n"
            "return [reply([count - counts[0] for count in counts])]"
        )
        assert served.run_code(code) == [0, 1, 0, 1, 0]

    def test_the_device_is_the_host(self, served):
        assert served.evaluate("pb_utils.Tensor('T', np.arange(4)).__dlpack_device__()") == [1, 0]

    @pytest.mark.parametrize(
        ("dtype", "code"),
        [
            *((name, 1) for name in ("uint8", "uint16", "uint32", "uint64")),
            *((name, 0) for name in ("int8", "int16", "int32", "int64")),
            *((name, 2) for name in ("float16", "float32", "float64")),
            ("bool", 6),
        ],
    )
    def test_types_and_shapes(self, served, dtype, code):
        code_of = RECORD + (
            f"t = pb_utils.Tensor('T', np.ones((2, 0, 3) if {dtype!r} == 'int8' else (2, 3), dtype={dtype!r}))\n"
            "capsule = t.to_dlpack()\n"
            "view = record_of(capsule).view\n"
            "back = pb_utils.Tensor.from_dlpack('B', t).as_numpy()\n"
            "same = back.dtype == t.as_numpy().dtype and (back == t.as_numpy()).all()\n"
            "return [reply([view.code, view.bits, view.lanes, list(view.shape[:view.ndim]), bool(same)])]"
        )
        bits = {"bool": 8}.get(dtype) or int("".join(filter(str.isdigit, dtype)))
        shape = [2, 0, 3] if dtype == "int8" else [2, 3]
        assert served.run_code(code_of) == [code, bits, 1, shape, True]

    def test_newer_keywords(self, served):
        code = (
            "t = pb_utils.Tensor('T', np.arange(4))\n"
            "t.__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=False)\n"
            "refused = []\n"
            "for options in ({'dl_device': (2, 0)}, {'copy': True}):\n"
            "    try:\n        t.__dlpack__(**options)\n"
            "    except BufferError as error:\n        refused.append(str(error))\n"
            "return [reply(refused)]"
        )
        assert [text.split()[0] for text in served.run_code(code)] == ["a", "a"]

    def test_strings_cannot_be_exported(self, served):
        what = "pb_utils.Tensor('T', np.array(['a'], dtype=object)).to_dlpack()"
        assert fetch(served, what) == "DLPack does not have support for string tensors."


class TestImport:
    @NEEDS_NUMPY_1_22
    def test_of_a_numpy_array_and_back_to_the_client(self, served):
        code = (
            "t = pb_utils.Tensor.from_dlpack('OUT', np.arange(6, dtype=np.int64).reshape(2, 3))\n"
            "return [reply([t.name(), t.shape(), t.triton_dtype(), t.is_cpu(), t.as_numpy().tolist()])]"
        )
        assert served.run_code(code) == ["OUT", [2, 3], 9, True, [[0, 1, 2], [3, 4, 5]]]

    @NEEDS_NUMPY_1_22
    def test_a_response_may_be_made_of_it(self, served):
        outputs = served.run(
            "return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack('OUT', np.arange(3.0))])]", model="script"
        )
        assert list(outputs["OUT"].data) == [0.0, 1.0, 2.0]

    @NEEDS_NUMPY_1_22
    def test_another_models_input_may_be_made_of_it(self, served):
        inner = "return [reply(pb_utils.get_input_tensor_by_name(request, 'X').as_numpy().tolist())]"
        code = (
            "x = pb_utils.Tensor.from_dlpack('X', np.arange(3, dtype=np.float32))\n"
            f"r = pb_utils.InferenceRequest(model_name='customized', requested_output_names=['OUT'],"
            f" inputs=[bls_call('x', {inner!r}).inputs()[0], x])\n"
            "return [reply(fetch(r.exec()))]"
        )
        assert served.run_code(code) == [0.0, 1.0, 2.0]

    def test_the_producers_memory_is_given_back_once(self, served):
        what = (
            "t = pb_utils.Tensor.from_dlpack('T', capsule_of(np.ones(3, dtype=np.float32), [3]))\n"
            "    before = len(deleted)\n"
            "    del t\n"
            "    return [reply([before, len(deleted)])]"
        )
        assert fetch(served, what) == [0, 1]

    def test_a_capsule_can_be_taken_once(self, served):
        what = (
            "capsule = pb_utils.Tensor('T', np.arange(4)).to_dlpack()\n"
            "    pb_utils.Tensor.from_dlpack('A', capsule)\n"
            "    pb_utils.Tensor.from_dlpack('B', capsule)"
        )
        assert "a capsule can be consumed once" in fetch(served, what)

    def test_bf16_passes_through_and_has_no_numpy(self, served):
        what = (
            "t = pb_utils.Tensor.from_dlpack('T', capsule_of(np.arange(4, dtype=np.uint16), [4], code=4, bits=16))\n"
            "    view = record_of(t.to_dlpack()).view\n"
            "    facts = [t.triton_dtype(), view.code, view.bits]\n"
            "    try:\n        t.as_numpy()\n"
            "    except pb_utils.TritonModelException as error:\n        return [reply(facts + [str(error)])]"
        )
        dtype, code, bits, text = fetch(served, what)
        assert (dtype, code, bits) == (14, 4, 16)
        assert text == (
            "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
        )

    @pytest.mark.parametrize(
        ("argument", "text"),
        [
            ("capsule_of(np.ones((3, 4), np.float32), [3, 2], strides=[4, 1])", NOT_CONTIGUOUS),
            ("capsule_of(np.ones((3, 4), np.float32), [4, 3], strides=[1, 4])", NOT_CONTIGUOUS),
            ("object()", "Provided tensor is not supported. Tensor must be a DLPack capsule"),
            (
                "capsule_of(np.ones(4, np.uint8), [4], code=4, bits=8)",
                "Expected BF16 tensor to have 16 bits, but had: 8",
            ),
            ("capsule_of(np.ones(4, np.complex64), [4], code=5, bits=64)", "DLPack type with code 5, 64 bits"),
            ("capsule_of(np.ones(4, np.float32), [4], lanes=4)", "and 4 lanes is not supported"),
            ("capsule_of(np.ones(4, np.float32), [4], device=7)", "DLDevice type 7 is not support by Python backend."),
        ],
    )
    def test_what_triton_has_no_tensors_for_is_refused(self, served, argument, text):
        assert text in fetch(served, f"pb_utils.Tensor.from_dlpack('T', {argument})")

    def test_strides_of_dimensions_of_one_do_not_matter(self, served):
        what = (
            "t = pb_utils.Tensor.from_dlpack('T', capsule_of(np.ones(3, np.float32), [1, 3], strides=[77, 1]))\n"
            "    return [reply(t.shape())]"
        )
        assert fetch(served, what) == [1, 3]

    @pytest.mark.parametrize("name", ["T", ""])
    def test_none_is_refused(self, served, name):
        text = "Provided tensor is not supported." if name else "Tensor name cannot be an empty string."
        assert fetch(served, f"pb_utils.Tensor.from_dlpack({name!r}, None)").startswith(text)

    @pytest.mark.parametrize(("major", "answer"), [(1, "[3]"), (2, "DLPack version 2.5 is not supported")])
    def test_a_record_of_another_major_version_is_not_read(self, served, major, answer):
        what = (
            "class Versioned(ctypes.Structure):\n"
            "        _fields_ = [('major', ctypes.c_uint32), ('minor', ctypes.c_uint32),\n"
            "                    ('context', ctypes.c_void_p), ('deleter', ctypes.c_void_p),\n"
            "                    ('flags', ctypes.c_uint64), ('view', View)]\n"
            "    capsule_of(np.ones(3, np.float32), [3])\n"
            f"    self.versioned = Versioned({major}, 5, None, None, 0, self.records[-1].view)\n"
            "    capsule = api.PyCapsule_New(ctypes.addressof(self.versioned), b'dltensor_versioned', None)\n"
            "    return [reply(str(pb_utils.Tensor.from_dlpack('T', capsule).shape()))]"
        )
        assert fetch(served, what).startswith(answer)

    def test_an_empty_name_is_refused(self, served):
        assert fetch(served, "pb_utils.Tensor.from_dlpack('', np.ones(3))") == "Tensor name cannot be an empty string."

    def test_a_tensor_of_a_gpu_without_a_driver_says_so(self, served):
        what = (
            "class OnGpu:\n"
            "        def __dlpack_device__(self):\n            return (2, 0)\n"
            "        def __dlpack__(self, stream=None):\n            raise AssertionError('not reached')\n"
            "    pb_utils.Tensor.from_dlpack('T', OnGpu())"
        )
        message = fetch(served, what)
        assert "CUDA" in message
