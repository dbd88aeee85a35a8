// Replaces the demangler of the C++ runtime, a twentieth of the stub in each half. It names the types of
// uncaught exceptions and those in pybind11's texts, which lie in namespaces; other names stay as they are.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kInvalidName = -2;

// "N7envpack3shm10RegionFullE" as "envpack::shm::RegionFull", "St9exception" as "std::exception"; or "".
std::string Demangle(const char* at) {
  std::string text;
  const bool is_nested = *at == 'N';
  if (is_nested) ++at;
  if (std::strncmp(at, "St", 2) == 0) {
    text = "std";
    at += 2;
  }
  while (*at >= '1' && *at <= '9') {
    char* name = nullptr;
    const std::size_t size = std::strtoul(at, &name, 10);
    if (strnlen(name, size) < size) return "";
    const std::string part(name, size);
    text += text.empty() ? "" : "::";
    text += part == "_GLOBAL__N_1" ? "(anonymous namespace)" : part;
    at = name + size;
  }
  return std::strcmp(at, is_nested ? "E" : "") == 0 ? text : "";
}

}  // namespace

extern "C" char* __cxa_demangle(const char* name, char* buffer, std::size_t* length, int* status) noexcept {
  const std::string text = Demangle(name);
  const std::size_t size = text.size() + 1;
  auto* result = text.empty() ? nullptr : static_cast<char*>(std::realloc(buffer, size));
  if (result != nullptr) std::memcpy(result, text.c_str(), size);
  if (result != nullptr && length != nullptr) *length = size;
  if (status != nullptr) *status = result != nullptr ? 0 : kInvalidName;
  return result;
}
