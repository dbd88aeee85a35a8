#include "module/conversions.h"

#include <array>
#include <cstring>
#include <iterator>

#include "module/error.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

// NumPy's numbers of types, the same in NumPy 1 and 2, by abi::DataType: bool, the unsigned and the signed
// integers, the floating point numbers, and objects for BYTES.
constexpr int kNone = -1;
constexpr int kNumbers[] = {kNone, 0, 2, 4, 6, 8, 1, 3, 5, 7, 23, 11, 12, 17, kNone};

// The type of 1, 2, 4 or 8 bytes.
abi::DataType BySize(py::ssize_t size, const std::array<abi::DataType, 4>& types) {
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (size == py::ssize_t{1} << i) return types[i];
  }
  return abi::DataType::kInvalid;
}

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
  using abi::DataType;
  // '=' is native byte order, '|' means not applicable.
  if (dtype.byteorder() != '=' && dtype.byteorder() != '|') return DataType::kInvalid;
  const py::ssize_t size = dtype.itemsize();
  // By kind and size and not by number: C's long and long long are two numbers for the same type.
  switch (dtype.kind()) {
    case 'b':
      return DataType::kBool;
    case 'u':
      return BySize(size, {DataType::kUint8, DataType::kUint16, DataType::kUint32, DataType::kUint64});
    case 'i':
      return BySize(size, {DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kInt64});
    case 'f':
      return BySize(size, {DataType::kInvalid, DataType::kFp16, DataType::kFp32, DataType::kFp64});
    case 'O':
    case 'S':
      return DataType::kBytes;
    default:
      return DataType::kInvalid;
  }
}

py::dtype ToNumpy(abi::DataType dtype) {
  if (dtype == abi::DataType::kBf16) {
    throw ModelException(
        "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead.");
  }
  const auto index = static_cast<std::size_t>(dtype);
  if (index >= std::size(kNumbers) || kNumbers[index] == kNone) {
    throw ModelException("Triton data type " + std::to_string(static_cast<int>(dtype)) + " is not known");
  }
  return py::dtype(kNumbers[index]);
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
