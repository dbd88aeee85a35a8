#include "module/conversions.h"

#include <cstring>
#include <string>

#include "abi/values.h"
#include "module/error.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

// Type numbers of NumPy, the same in NumPy 1 and 2.
enum NumpyNumber {
  kBool = 0,
  kInt8 = 1,
  kUint8 = 2,
  kInt16 = 3,
  kUint16 = 4,
  kInt32 = 5,
  kUint32 = 6,
  kInt64 = 7,
  kUint64 = 8,
  kFloat32 = 11,
  kFloat64 = 12,
  kObject = 17,
  kFloat16 = 23,
};

abi::DataType BySize(py::ssize_t size, abi::DataType one, abi::DataType two, abi::DataType four,
                     abi::DataType eight) {
  switch (size) {
    case 1:
      return one;
    case 2:
      return two;
    case 4:
      return four;
    case 8:
      return eight;
    default:
      return abi::DataType::kInvalid;
  }
}

}  // namespace

abi::DataType FromNumpy(const py::dtype& dtype) {
  using abi::DataType;
  // '=' is native byte order, '|' means not applicable.
  if (dtype.byteorder() != '=' && dtype.byteorder() != '|') return DataType::kInvalid;
  const py::ssize_t size = dtype.itemsize();
  // By kind and size and not by number: C's long and long long are two numbers for the same type.
  switch (dtype.kind()) {
    case 'b':
      return DataType::kBool;
    case 'u':
      return BySize(size, DataType::kUint8, DataType::kUint16, DataType::kUint32, DataType::kUint64);
    case 'i':
      return BySize(size, DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kInt64);
    case 'f':
      return BySize(size, DataType::kInvalid, DataType::kFp16, DataType::kFp32, DataType::kFp64);
    case 'O':
    case 'S':
      return DataType::kBytes;
    default:
      return DataType::kInvalid;
  }
}

py::dtype ToNumpy(abi::DataType dtype) {
  using abi::DataType;
  switch (dtype) {
    case DataType::kBool:
      return py::dtype(kBool);
    case DataType::kUint8:
      return py::dtype(kUint8);
    case DataType::kUint16:
      return py::dtype(kUint16);
    case DataType::kUint32:
      return py::dtype(kUint32);
    case DataType::kUint64:
      return py::dtype(kUint64);
    case DataType::kInt8:
      return py::dtype(kInt8);
    case DataType::kInt16:
      return py::dtype(kInt16);
    case DataType::kInt32:
      return py::dtype(kInt32);
    case DataType::kInt64:
      return py::dtype(kInt64);
    case DataType::kFp16:
      return py::dtype(kFloat16);
    case DataType::kFp32:
      return py::dtype(kFloat32);
    case DataType::kFp64:
      return py::dtype(kFloat64);
    case DataType::kBytes:
      return py::dtype(kObject);
    case DataType::kBf16:
      throw ModelException(
          "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() "
          "instead.");
    case DataType::kInvalid:
      break;
  }
  throw ModelException("Triton data type " + std::to_string(static_cast<int>(dtype)) + " is not known");
}

namespace {

void Append(std::string& out, const char* data, std::size_t size) {
  if (size > UINT32_MAX) throw ModelException("An element of a BYTES tensor is longer than 4 GiB.");
  const auto length = static_cast<std::uint32_t>(size);
  out.append(reinterpret_cast<const char*>(&length), sizeof(length));
  out.append(data, size);
}

void AppendText(std::string& out, PyObject* text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) throw py::error_already_set();
  Append(out, data, static_cast<std::size_t>(size));
}

void AppendObject(std::string& out, PyObject* element) {
  if (PyBytes_Check(element)) {
    Append(out, PyBytes_AS_STRING(element), static_cast<std::size_t>(PyBytes_GET_SIZE(element)));
  } else if (PyUnicode_Check(element)) {
    AppendText(out, element);
  } else {
    AppendText(out, py::str(py::handle(element)).ptr());
  }
}

}  // namespace

std::string SerializeBytes(const py::array& array) {
  std::string out;
  const py::ssize_t count = array.size();
  if (array.dtype().kind() == 'O') {
    const auto* elements = static_cast<PyObject* const*>(array.data());
    for (py::ssize_t i = 0; i < count; ++i) {
      // NumPy represents an unset element as a null pointer and reads it as None.
      AppendObject(out, elements[i] == nullptr ? Py_None : elements[i]);
    }
    return out;
  }
  const auto width = static_cast<std::size_t>(array.itemsize());
  const auto* elements = static_cast<const char*>(array.data());
  for (py::ssize_t i = 0; i < count; ++i, elements += width) {
    std::size_t length = width;
    while (length > 0 && elements[length - 1] == '\0') --length;  // the padding of S<n>
    Append(out, elements, length);
  }
  return out;
}

py::array DeserializeBytes(const char* data, std::size_t size, const std::vector<std::int64_t>& dims) {
  py::array array(ToNumpy(abi::DataType::kBytes), dims);
  auto* elements = static_cast<PyObject**>(array.mutable_data());
  const char* const end = data + size;
  for (py::ssize_t i = 0, count = array.size(); i < count; ++i) {
    std::uint32_t length = 0;
    if (end - data < static_cast<std::ptrdiff_t>(sizeof(length))) {
      throw ModelException("Invalid bytes tensor data: incomplete length field");
    }
    std::memcpy(&length, data, sizeof(length));
    data += sizeof(length);
    if (end - data < static_cast<std::ptrdiff_t>(length)) {
      throw ModelException("Invalid bytes tensor data: string extends beyond buffer");
    }
    PyObject* element = PyBytes_FromStringAndSize(data, length);
    if (element == nullptr) throw py::error_already_set();
    PyObject* before = elements[i];
    elements[i] = element;
    Py_XDECREF(before);
    data += length;
  }
  if (data != end) throw ModelException("Invalid bytes tensor data: more bytes than elements");
  return array;
}

namespace {

// The server keeps integers in 64 bits. Triton 26.06 aborts when it reads a larger one.
bool FitsIn64Bits(py::handle number) {
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  return overflow == 0;
}

}  // namespace

std::string ToParameters(const py::object& parameters) {
  if (!py::isinstance<py::dict>(parameters)) {
    throw ModelException("Expect parameters to be a dict, got " + TypeOf(parameters));
  }
  for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(parameters)) {
    if (!py::isinstance<py::str>(key)) {
      throw ModelException("Expect parameters keys to have type str, found type " + TypeOf(key));
    }
    if (!py::isinstance<py::int_>(value) && !py::isinstance<py::str>(value)) {  // bool is an int
      throw ModelException("Expect parameters values to have type bool/int/str, found type " + TypeOf(value));
    }
    if (py::isinstance<py::int_>(value) && !FitsIn64Bits(value)) {
      throw ModelException("Expect parameters values of type int to be from -2**63 to 2**63 - 1, which '" +
                           key.cast<std::string>() + "' is not");
    }
  }
  return py::module_::import("json").attr("dumps")(parameters).cast<std::string>();
}

}  // namespace envpack::module
