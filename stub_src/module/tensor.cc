#include "module/tensor.h"

#include <pybind11/stl.h>

#include <cstring>
#include <utility>

#include "module/conversions.h"
#include "module/error.h"
#include "module/module.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

bool IsContiguous(const py::array& array) { return (array.flags() & py::array::c_style) != 0; }

// Throws ModelException for invalid shapes.
std::size_t ByteSize(const std::vector<std::int64_t>& dims, std::size_t item) {
  std::size_t bytes = item;
  for (const std::int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(dim), &bytes)) {
      throw ModelException("A tensor cannot have a dimension of " + std::to_string(dim) + ".");
    }
  }
  return bytes;
}

std::string Describe(const Tensor& tensor) {
  std::string text =
      "<Tensor '" + tensor.name() + "' dtype " + std::to_string(static_cast<int>(tensor.dtype())) + " [";
  for (std::size_t i = 0; i < tensor.dims().size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.dims()[i]);
  }
  return text + "]>";
}

[[noreturn]] void RefuseDtype(const std::string& name, const py::dtype& dtype) {
  std::string reason = "NumPy dtype is not supported. Tensor '" + name + "' has the dtype " +
                       TextOf(py::str(py::handle(dtype))) + ".";
  if (dtype.kind() == 'U' || dtype.kind() == 'T') reason += " Convert strings with astype(object).";
  throw ModelException(reason);
}

// What lies under a mask would be sent. Only who has imported numpy.ma has masked arrays.
void RefuseMaskedValues(const std::string& name, const py::array& array) {
  if (Py_TYPE(array.ptr()) == py::detail::npy_api::get().PyArray_Type_) return;
  const py::object masked = FindModule("numpy.ma");
  if (!masked || !masked.attr("is_masked")(array).cast<bool>()) return;
  throw ModelException("Tensor '" + name +
                       "' has masked values, which Triton does not know. Replace them with filled().");
}

// With the keywords of newer consumers. `stream` is ignored: the server has finished its work on a tensor
// before the model gets it.
py::capsule Export(const py::object& self, const py::object&, const py::object&, const py::object& dl_device,
                   const py::object& copy) {
  if (!dl_device.is_none() && !dl_device.equal(DlpackDevice(self.cast<const Tensor&>()))) {
    throw py::buffer_error("a tensor can only be exported to its own device");
  }
  if (!copy.is_none() && copy.cast<bool>()) {
    throw py::buffer_error("a tensor is exported without a copy; copy it after the import");
  }
  return ToDlpack(self);
}

}  // namespace

Tensor::Tensor(std::string name, py::array array) {
  if (name.empty()) throw ModelException("Tensor name cannot be an empty string.");
  RefuseMaskedValues(name, array);
  value_.name = std::move(name);
  value_.dtype = FromNumpy(array.dtype());
  if (value_.dtype == abi::DataType::kInvalid) RefuseDtype(value_.name, array.dtype());
  value_.dims.assign(array.shape(), array.shape() + array.ndim());
  if (!IsContiguous(array)) {
    array = py::array::ensure(py::module_::import("numpy").attr("ascontiguousarray")(array));
    if (!array) throw py::error_already_set();
  }
  array_ = array;
  if (value_.dtype == abi::DataType::kBytes) {
    auto serialized = std::make_shared<const std::string>(SerializeBytes(array));
    value_.data = serialized->data();
    value_.byte_size = serialized->size();
    value_.owner = std::move(serialized);
  } else {
    value_.data = array.data();
    value_.byte_size = static_cast<std::size_t>(array.nbytes());
  }
}

Tensor::Tensor(abi::Tensor value) : value_(std::move(value)) {}

std::shared_ptr<Tensor> Tensor::Empty(std::string name, std::vector<std::int64_t> dims,
                                      const py::object& dtype) {
  if (name.empty()) throw ModelException("Tensor name cannot be an empty string.");
  const py::dtype type = py::dtype::from_args(dtype);
  abi::Tensor value;
  value.name = std::move(name);
  value.dtype = FromNumpy(type);
  if (value.dtype == abi::DataType::kInvalid) RefuseDtype(value.name, type);
  if (value.dtype == abi::DataType::kBytes) {
    throw ModelException("A BYTES tensor has no fixed size; create it from an array.");
  }
  value.byte_size = ByteSize(dims, static_cast<std::size_t>(type.itemsize()));
  value.dims = std::move(dims);
  auto tensor = std::make_shared<Tensor>(
      CallServer("Failed to allocate a tensor: ", [&](abi::Wire& wire) { return wire.Allocate(value); }));
  using Owner = std::shared_ptr<const void>;
  auto owner = std::make_unique<Owner>(tensor->value_.owner);
  const py::capsule base(owner.get(),
                         [](void* kept) { const std::unique_ptr<Owner> gone(static_cast<Owner*>(kept)); });
  owner.release();  // now owned by the capsule
  tensor->array_ = py::array(type, tensor->value_.dims, tensor->value_.data, base);
  return tensor;
}

py::array Tensor::AsNumpy() {
  if (array_) return py::reinterpret_borrow<py::array>(array_);
  if (!IsCpu()) throw ModelException("Tensor is stored in GPU and cannot be converted to NumPy.");
  py::array array;
  if (value_.dtype == abi::DataType::kBytes) {
    array = DeserializeBytes(static_cast<const char*>(value_.data), value_.byte_size, value_.dims);
  } else {
    array = py::array(ToNumpy(value_.dtype), value_.dims);
    if (static_cast<std::size_t>(array.nbytes()) != value_.byte_size) {
      throw ModelException("Tensor '" + value_.name + "' has " + std::to_string(value_.byte_size) +
                           " bytes, its shape needs " + std::to_string(array.nbytes()) + ".");
    }
    if (value_.byte_size != 0) std::memcpy(array.mutable_data(), value_.data, value_.byte_size);
  }
  array_ = array;
  return array;
}

void BindTensor(py::module_& module) {
  py::class_<Tensor, std::shared_ptr<Tensor>>(module, "Tensor")
      .def(py::init<std::string, py::array>(), py::arg("name").none(false),
           py::arg("array").noconvert().none(false))
      .def("name", &Tensor::name)
      .def("as_numpy", &Tensor::AsNumpy)
      .def("triton_dtype", [](const Tensor& self) { return static_cast<int>(self.dtype()); })
      .def("shape", &Tensor::dims)
      .def("is_cpu", &Tensor::IsCpu)
      .def_static("empty", &Tensor::Empty, py::arg("name").none(false), py::arg("shape").none(false),
                  py::arg("dtype").none(false))
      .def("to_dlpack", &ToDlpack)
      .def_static(
          "from_dlpack",
          [](std::string name, const py::object& tensor) {
            if (py::isinstance<py::array>(tensor)) {
              RefuseMaskedValues(name, py::reinterpret_borrow<py::array>(tensor));
            }
            return std::make_shared<Tensor>(FromDlpack(std::move(name), tensor));
          },
          py::arg("name").none(false), py::arg("tensor"))
      .def("__dlpack__", &Export, py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
           py::arg("dl_device") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack_device__", &DlpackDevice)
      .def("__repr__", &Describe);
}

}  // namespace envpack::module
