// Tensors from and to other libraries by DLPack, without a copy. Declared in tensor.h.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/gpu.h"
#include "module/error.h"
#include "module/tensor.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

// Records of the DLPack standard.
enum Device : std::int32_t { kHost = 1, kCuda = 2, kCudaHost = 3 };

struct Type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct View {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  Type dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null for C order
  std::uint64_t byte_offset;
};
static_assert(sizeof(View) == 48);

struct Managed {
  static constexpr const char* kName = "dltensor";
  static constexpr const char* kUsedName = "used_dltensor";

  View view;
  void* context;
  void (*deleter)(Managed*);
};

// The record of DLPack 1.x.
struct ManagedVersioned {
  static constexpr std::uint32_t kMajor = 1;
  static constexpr const char* kName = "dltensor_versioned";
  static constexpr const char* kUsedName = "used_dltensor_versioned";

  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  View view;
};

struct Code {
  enum : std::uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6 };
};

struct KnownType {
  abi::DataType dtype;
  Type type;
};
constexpr KnownType kTypes[] = {
    {abi::DataType::kBool, {Code::kBool, 8, 1}},    {abi::DataType::kUint8, {Code::kUint, 8, 1}},
    {abi::DataType::kUint16, {Code::kUint, 16, 1}}, {abi::DataType::kUint32, {Code::kUint, 32, 1}},
    {abi::DataType::kUint64, {Code::kUint, 64, 1}}, {abi::DataType::kInt8, {Code::kInt, 8, 1}},
    {abi::DataType::kInt16, {Code::kInt, 16, 1}},   {abi::DataType::kInt32, {Code::kInt, 32, 1}},
    {abi::DataType::kInt64, {Code::kInt, 64, 1}},   {abi::DataType::kFp16, {Code::kFloat, 16, 1}},
    {abi::DataType::kFp32, {Code::kFloat, 32, 1}},  {abi::DataType::kFp64, {Code::kFloat, 64, 1}},
    {abi::DataType::kBf16, {Code::kBfloat, 16, 1}},
};

Type ToType(abi::DataType dtype) {
  if (dtype == abi::DataType::kBytes)
    throw ModelException("DLPack does not have support for string tensors.");
  for (const KnownType& known : kTypes) {
    if (known.dtype == dtype) return known.type;
  }
  throw ModelException("Triton data type " + std::to_string(static_cast<int>(dtype)) + " is not known");
}

abi::DataType FromType(const Type& type) {
  if (type.code == Code::kBfloat && type.bits != 16) {
    throw ModelException("Expected BF16 tensor to have 16 bits, but had: " + std::to_string(type.bits));
  }
  for (const auto& [dtype, known] : kTypes) {
    if (known.code == type.code && known.bits == type.bits && known.lanes == type.lanes) return dtype;
  }
  throw ModelException("DLPack type with code " + std::to_string(type.code) + ", " +
                       std::to_string(type.bits) + " bits and " + std::to_string(type.lanes) +
                       " lanes is not supported.");
}

std::size_t CountOf(const View& view) {
  std::size_t count = 1;
  for (std::int32_t i = 0; i < view.ndim; ++i) count *= static_cast<std::size_t>(view.shape[i]);
  return count;
}

void CheckContiguous(const View& view) {
  if (view.strides == nullptr || CountOf(view) == 0) return;
  std::int64_t expected = 1;
  for (std::int32_t i = view.ndim; i-- > 0; expected *= view.shape[i]) {
    // The stride of a dimension of size 1 is unused and may have any value.
    if (view.shape[i] != 1 && view.strides[i] != expected) {
      throw ModelException(
          "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are "
          "supported.");
    }
  }
}

void CheckDevice(std::int64_t type) {
  if (type == kHost || type == kCuda || type == kCudaHost) return;
  throw ModelException("DLDevice type " + std::to_string(type) + " is not support by Python backend.");
}

// The tensor, without its owner. Pinned memory counts as host memory.
abi::Tensor DescribeView(std::string name, const View& view) {
  CheckDevice(view.device_type);
  CheckContiguous(view);
  abi::Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = FromType(view.dtype);
  tensor.dims.assign(view.shape, view.shape + view.ndim);
  tensor.byte_size = CountOf(view) * (view.dtype.bits / 8);
  tensor.data = static_cast<const char*>(view.data) + view.byte_offset;
  if (view.device_type == kCuda) {
    tensor.memory_type = abi::MemoryType::kGpu;
    tensor.memory_type_id = view.device_id;
  }
  return tensor;
}

void CheckVersion(const Managed&) {}

// Of a record of another major version only the version and the deleter may be read.
void CheckVersion(const ManagedVersioned& record) {
  if (record.major == ManagedVersioned::kMajor) return;
  throw ModelException("DLPack version " + std::to_string(record.major) + "." + std::to_string(record.minor) +
                       " is not supported, only 1.x and older ones.");
}

template <typename Record>
abi::Tensor Take(std::string name, const py::capsule& capsule) {
  auto* record = static_cast<Record*>(PyCapsule_GetPointer(capsule.ptr(), Record::kName));
  if (record == nullptr) throw py::error_already_set();
  CheckVersion(*record);
  abi::Tensor tensor = DescribeView(std::move(name), record->view);
  // From now on the stub owns the memory; the new name prevents another import.
  if (PyCapsule_SetName(capsule.ptr(), Record::kUsedName) != 0) throw py::error_already_set();
  tensor.owner = std::shared_ptr<const void>(record, [](Record* taken) {
    const py::gil_scoped_acquire gil;
    if (taken->deleter != nullptr) taken->deleter(taken);
  });
  return tensor;
}

abi::Tensor TakeCapsule(std::string name, const py::capsule& capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), Managed::kName) != 0) return Take<Managed>(std::move(name), capsule);
  if (PyCapsule_IsValid(capsule.ptr(), ManagedVersioned::kName) != 0) {
    return Take<ManagedVersioned>(std::move(name), capsule);
  }
  const char* label = PyCapsule_GetName(capsule.ptr());
  throw ModelException(std::string("A capsule named '") + (label != nullptr ? label : "") +
                       "' is not a DLPack tensor, or has been consumed; a capsule can be consumed once.");
}

// The producer orders its work on the stub's stream; waits for that work.
abi::Tensor TakeFromCuda(std::string name, const py::object& producer, std::int64_t device) {
  try {
    const auto stream = reinterpret_cast<std::uintptr_t>(cuda::TheGpu().StreamOf(device));
    abi::Tensor tensor =
        TakeCapsule(std::move(name), producer.attr("__dlpack__")(py::arg("stream") = stream));
    const py::gil_scoped_release unlocked;
    cuda::TheGpu().Synchronize(device);
    return tensor;
  } catch (const abi::GpuError& error) {
    throw ModelException(error.what());
  }
}

// What an exported capsule keeps alive: the tensor, and the shape, which DLPack refers to.
struct Export {
  py::object tensor;
  std::vector<std::int64_t> shape;
  Managed record;
};

void Delete(Managed* record) {
  const py::gil_scoped_acquire gil;
  const std::unique_ptr<Export> gone(static_cast<Export*>(record->context));
}

// The destructor of a capsule. A consumed capsule has another name: its consumer owns the memory.
void DropCapsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, Managed::kName) == 0) return;
  Delete(static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::kName)));
}

}  // namespace

abi::Tensor FromDlpack(std::string name, const py::object& producer) {
  if (name.empty()) throw ModelException("Tensor name cannot be an empty string.");
  if (py::isinstance<py::capsule>(producer)) return TakeCapsule(std::move(name), producer);
  if (!py::hasattr(producer, "__dlpack__") || !py::hasattr(producer, "__dlpack_device__")) {
    throw ModelException(
        "Provided tensor is not supported. Tensor must be a DLPack capsule or have the methods '__dlpack__' "
        "and '__dlpack_device__'.");
  }
  const auto device = producer.attr("__dlpack_device__")().cast<std::pair<py::int_, py::int_>>();
  CheckDevice(device.first.cast<std::int64_t>());
  if (device.first.cast<std::int64_t>() == kCuda) {
    return TakeFromCuda(std::move(name), producer, device.second.cast<std::int64_t>());
  }
  return TakeCapsule(std::move(name), producer.attr("__dlpack__")(py::arg("stream") = py::none()));
}

py::capsule ToDlpack(const py::object& tensor) {
  const auto& self = tensor.cast<const Tensor&>();
  const abi::Tensor& value = self.ToValue();
  const Type type = ToType(value.dtype);
  if (!value.unreachable.empty()) throw ModelException(value.unreachable);
  auto exported = std::make_unique<Export>(Export{tensor, value.dims, {}});
  View& view = exported->record.view;
  view.data = const_cast<void*>(value.data);
  view.device_type = self.IsCpu() ? kHost : kCuda;
  view.device_id = self.IsCpu() ? 0 : static_cast<std::int32_t>(value.memory_type_id);
  view.ndim = static_cast<std::int32_t>(exported->shape.size());
  view.dtype = type;
  view.shape = exported->shape.data();
  exported->record.context = exported.get();
  exported->record.deleter = &Delete;
  py::capsule capsule(&exported->record, Managed::kName, &DropCapsule);
  exported.release();  // now owned by the capsule
  return capsule;
}

py::tuple DlpackDevice(const Tensor& tensor) {
  if (tensor.IsCpu()) return py::make_tuple(static_cast<int>(kHost), 0);
  return py::make_tuple(static_cast<int>(kCuda), tensor.ToValue().memory_type_id);
}

}  // namespace envpack::module
