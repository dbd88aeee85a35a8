#include "module/conversions.h"

#include <cstring>

#include "module/error.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

// A type of both: its kind, size and number in NumPy, which are the same in NumPy 1 and 2.
struct NumpyType {
  abi::DataType dtype;
  char kind;
  py::ssize_t size;
  int number;
};
constexpr NumpyType kNumpyTypes[] = {
    {abi::DataType::kBool, 'b', 1, 0},   {abi::DataType::kUint8, 'u', 1, 2},
    {abi::DataType::kUint16, 'u', 2, 4}, {abi::DataType::kUint32, 'u', 4, 6},
    {abi::DataType::kUint64, 'u', 8, 8}, {abi::DataType::kInt8, 'i', 1, 1},
    {abi::DataType::kInt16, 'i', 2, 3},  {abi::DataType::kInt32, 'i', 4, 5},
    {abi::DataType::kInt64, 'i', 8, 7},  {abi::DataType::kFp16, 'f', 2, 23},
    {abi::DataType::kFp32, 'f', 4, 11},  {abi::DataType::kFp64, 'f', 8, 12},
    {abi::DataType::kBytes, 'O', 8, 17},
};

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

// The server keeps integers in 64 bits. Triton 26.06 aborts when it reads a larger one.
bool FitsIn64Bits(py::handle number) {
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  return overflow == 0;
}

}  // namespace

abi::DataType FromNumpy(const py::dtype& dtype) {
  // '=' is native byte order, '|' means not applicable.
  if (dtype.byteorder() != '=' && dtype.byteorder() != '|') return abi::DataType::kInvalid;
  if (dtype.kind() == 'S') return abi::DataType::kBytes;
  // By kind and size and not by number: C's long and long long are two numbers for the same type.
  for (const NumpyType& type : kNumpyTypes) {
    if (type.kind == dtype.kind() && type.size == dtype.itemsize()) return type.dtype;
  }
  return abi::DataType::kInvalid;
}

py::dtype ToNumpy(abi::DataType dtype) {
  if (dtype == abi::DataType::kBf16) {
    throw ModelException(
        "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead.");
  }
  for (const NumpyType& type : kNumpyTypes) {
    if (type.dtype == dtype) return py::dtype(type.number);
  }
  throw ModelException("Triton data type " + std::to_string(static_cast<int>(dtype)) + " is not known");
}

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

std::string ToJson(const py::object& value) {
  return py::module_::import("json").attr("dumps")(value).cast<std::string>();
}

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
                           TextOf(key) + "' is not");
    }
  }
  return ToJson(parameters);
}

}  // namespace envpack::module
