#include "check.h"

#include <cstdio>
#include <map>
#include <vector>

namespace envpack::test {

namespace {

std::map<std::string, void (*)()>& Cases() {
  static std::map<std::string, void (*)()> cases;
  return cases;
}

bool Run(const std::string& name) {
  const auto found = Cases().find(name);
  if (found == Cases().end()) {
    std::fprintf(stderr, "unknown case %s\n", name.c_str());
    return false;
  }
  try {
    found->second();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return false;
  }
}

}  // namespace

Register::Register(const char* name, void (*body)()) { Cases().emplace(name, body); }

void Fail(const char* file, int line, const std::string& what) {
  throw Failed(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

int RunCases(int argc, char** argv) {
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty() || names.front() == "--list") {
    const bool list = !names.empty();
    names.clear();
    for (const auto& [name, body] : Cases()) {
      if (list)
        std::puts(name.c_str());
      else
        names.push_back(name);
    }
  }
  int failed = 0;
  for (const std::string& name : names) failed += Run(name) ? 0 : 1;
  return failed == 0 ? 0 : 1;
}

}  // namespace envpack::test
