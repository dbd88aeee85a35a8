// Names of C++ types, in the texts of crashes and of pybind11.
#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

#include "check.h"
#include "shm/region.h"

namespace {

struct Hidden {};

struct Result {
  std::string name;
  int status;
};

Result Demangle(const char* mangled) {
  int status = 1;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                    std::free);
  return {name ? name.get() : "", status};
}

}  // namespace

CASE(demangle_names_types_in_namespaces) {
  CHECK_EQ(Demangle(typeid(envpack::shm::RegionFull).name()).name, "envpack::shm::RegionFull");
  CHECK_EQ(Demangle(typeid(std::runtime_error).name()).name, "std::runtime_error");
  CHECK_EQ(Demangle(typeid(Hidden).name()).name, "(anonymous namespace)::Hidden");
  CHECK_EQ(Demangle("5Plain").name, "Plain");
  CHECK_EQ(Demangle("5Plain").status, 0);
}

CASE(demangle_leaves_other_names) {
  for (const char* other : {typeid(int).name(), typeid(std::vector<int>).name(), "", "N", "E", "NE", "5Plai",
                            "N5PlainEx", "99999999999999999999x"}) {
    const Result result = Demangle(other);
    CHECK_EQ(result.status, -2);
    CHECK_EQ(result.name, "");
  }
}

CASE(demangle_uses_the_buffer_of_the_caller) {
  std::size_t length = 2;
  auto* buffer = static_cast<char*>(std::malloc(length));
  buffer = abi::__cxa_demangle("5Plain", buffer, &length, nullptr);
  CHECK_EQ(std::string(buffer), "Plain");
  CHECK_EQ(length, 6u);
  std::free(buffer);
}
