#include "module/shared_memory.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

struct SharedMemory {
  abi::Wire* wire;
};

std::uint64_t FreeMemory(const SharedMemory& self) {
  const py::gil_scoped_release unlocked;
  return self.wire->FreeBytes();
}

}  // namespace

void BindSharedMemory(py::module_& module) {
  py::class_<SharedMemory>(module, "SharedMemory").def("free_memory", &FreeMemory);
}

void ExposeSharedMemory(py::module_& module, abi::Wire& wire) {
  module.attr("shared_memory") = SharedMemory{&wire};
}

}  // namespace envpack::module
