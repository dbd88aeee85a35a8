#include "module/dtype.h"

#include <string>

#include "module/error.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

// Numbers of NumPy's type registry; the same in NumPy 1 and 2.
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
  // '=' is native order, '|' does not apply.
  if (dtype.byteorder() != '=' && dtype.byteorder() != '|') return DataType::kInvalid;
  const py::ssize_t size = dtype.itemsize();
  // By kind and size rather than by number, since C's long and long long are two numbers for one type.
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

}  // namespace envpack::module
