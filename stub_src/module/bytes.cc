#include "module/bytes.h"

#include <cstring>

#include "abi/values.h"
#include "module/dtype.h"
#include "module/error.h"

namespace py = pybind11;

namespace envpack::module {

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
      // NumPy represents an element that was never set as a null pointer and reads it as None.
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

}  // namespace envpack::module
