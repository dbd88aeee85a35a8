#include "model/home.h"

#include <Python.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "two_halves/build_info.h"

namespace envpack::model {

namespace {

bool Exists(const std::string& file) { return access(file.c_str(), F_OK) == 0; }

bool RemoveSuffix(std::string& text, std::string_view suffix) {
  if (text.size() < suffix.size()) return false;
  const std::size_t start = text.size() - suffix.size();
  if (std::string_view(text).substr(start) != suffix) return false;
  text.resize(start);
  return true;
}

// <prefix> of <prefix>/lib/libpython3.10.so.1.0, which may also be written <prefix>/bin/../lib/…; or empty.
std::string PrefixOfLibpython() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&Py_GetVersion), &info) == 0 || info.dli_fname == nullptr)
    return {};
  std::string folder(info.dli_fname);
  folder.resize(std::min(folder.rfind('/'), folder.size()));
  if (!RemoveSuffix(folder, "/bin/../lib") && !RemoveSuffix(folder, "/lib")) return {};
  return folder;
}

// The folder above the first folder on PATH that has a python3, executable or not; or empty.
std::string PrefixOnPath() {
  const char* path = std::getenv("PATH");
  std::string_view rest(path != nullptr ? path : "");
  while (!rest.empty()) {
    std::string folder(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
    if (Exists(folder + "/python3")) return RemoveSuffix(folder, "/bin") ? folder : std::string();
  }
  return {};
}

// Whether a prefix is a virtual environment: its configuration names the Python that it belongs to.
bool IsVirtual(const std::string& prefix) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> configuration(
      std::fopen((prefix + "/pyvenv.cfg").c_str(), "re"), &std::fclose);
  if (configuration == nullptr) return false;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), configuration.get()) != nullptr) {
    if (std::string_view(line.data()).rfind("home", 0) == 0) return true;
  }
  return false;
}

}  // namespace

std::optional<Home> FindHome() {
  if (std::getenv("PYTHONHOME") != nullptr) return std::nullopt;
  const std::string prefix = PrefixOfLibpython();
  const std::string library = prefix + "/lib/python" + build::kPythonMinor;
  if (prefix.empty() || !Exists(library + "/encodings/__init__.py")) return std::nullopt;
  if (const std::string found = PrefixOnPath(); !found.empty() && IsVirtual(found)) return std::nullopt;
  return Home{prefix, prefix + "/bin/python3"};
}

}  // namespace envpack::model
