#include "two_halves/libpython.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "two_halves/build_info.h"

namespace envpack {

namespace {

bool TryLoad(const std::string& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr; }

// <prefix>/lib of the first python3 on PATH, from which the interpreter will derive its prefix; or empty.
std::string LibraryFolderOnPath() {
  const char* path = std::getenv("PATH");
  std::string_view rest(path != nullptr ? path : "");
  while (!rest.empty()) {
    const std::string folder(rest.substr(0, rest.find(':')));
    if (access((folder + "/python3").c_str(), X_OK) == 0) return folder + "/../lib/";
    rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
  }
  return {};
}

}  // namespace

std::string LoadLibpython() {
  const std::string name(build::kLibpython);
  if (TryLoad(name)) return {};
  std::string reason = dlerror();
  const std::string folder = LibraryFolderOnPath();
  if (!folder.empty()) {
    if (TryLoad(folder + name)) return {};
    reason += "; ";
    reason += dlerror();
  }
  return "this stub needs " + name + " (Python " + build::kPythonMinor +
         "), which could not be loaded: " + reason +
         ". The model's execution environment must contain Python " + build::kPythonMinor +
         " with a shared libpython, or build the stub for the environment's Python.";
}

}  // namespace envpack
