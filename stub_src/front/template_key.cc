#include "front/template_key.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "base/files.h"

extern "C" char** environ;

namespace envpack::front {

namespace {

constexpr std::size_t kMostFiles = 4096;
constexpr std::size_t kMostCode = std::size_t{64} << 20;  // bytes of Python files
constexpr std::size_t kMostStat = 4096;

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Collects facts. Two hashes of 64 bits: files that differ by accident have different keys.
class Facts {
 public:
  void Add(std::string_view name, std::string_view value) {
    text_ += name;
    text_ += ' ';
    text_ += std::to_string(value.size());
    text_ += ' ';
    text_ += value;
    text_ += '\n';
  }

  std::string Hash() const {
    const std::hash<std::string_view> hash;
    char text[40];
    std::snprintf(text, sizeof(text), "%016zx%016zx", hash(text_), hash(text_ + "again"));
    return text;
  }

 private:
  std::string text_;
};

// Changes with each change of a file.
std::string StateOf(const std::string& path) {
  struct stat facts{};
  if (stat(path.c_str(), &facts) != 0) return "none";
  std::string text;
  for (const auto number :
       {static_cast<std::int64_t>(facts.st_dev), static_cast<std::int64_t>(facts.st_ino),
        static_cast<std::int64_t>(facts.st_size), static_cast<std::int64_t>(facts.st_mtim.tv_sec),
        static_cast<std::int64_t>(facts.st_mtim.tv_nsec), static_cast<std::int64_t>(facts.st_ctim.tv_sec),
        static_cast<std::int64_t>(facts.st_ctim.tv_nsec)}) {
    text += std::to_string(number) + " ";
  }
  return text;
}

// The Python files of a model: all of the version, and those directly in the model's folder, which may
// contain an environment. Not the other files: models may write some when they are imported.
class Code {
 public:
  explicit Code(Facts& facts) : facts_(facts) {}

  void AddFolder(const std::string& folder, bool with_folders) {
    std::vector<std::string> names = NamesIn(folder);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) AddEntry(folder + "/" + name, with_folders);
  }

 private:
  void AddEntry(const std::string& path, bool with_folders) {
    if (++files_ > kMostFiles) {
      throw std::runtime_error("the model's folder contains more than " + std::to_string(kMostFiles) +
                               " files");
    }
    struct stat facts{};
    if (lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) {
      if (with_folders && !EndsWith(path, "/__pycache__")) AddFolder(path, true);
      return;
    }
    if (!EndsWith(path, ".py")) return;
    const std::string text = ReadFile(path, kMostCode + 1);
    if ((code_ += text.size()) > kMostCode) {
      throw std::runtime_error("the model's folder contains more than 64 MiB of Python files");
    }
    facts_.Add(path, text);
  }

  Facts& facts_;
  std::size_t files_ = 0;
  std::size_t code_ = 0;  // bytes
};

// <environment>/lib is the first folder of LD_LIBRARY_PATH, by the server.
void AddEnvironment(Facts& facts) {
  const char* path = std::getenv("LD_LIBRARY_PATH");
  const std::string_view folders(path != nullptr ? path : "");
  const std::string library(folders.substr(0, folders.find(':')));
  facts.Add("environment", library);
  facts.Add("library", StateOf(library));
  facts.Add("prefix", StateOf(ParentOf(library)));
}

void AddVariables(Facts& facts) {
  std::vector<std::string_view> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  std::sort(variables.begin(), variables.end());
  for (const std::string_view variable : variables) facts.Add("variable", variable);
}

// The time at which a process has started tells it from an earlier one with the same id.
std::string StartOf(std::int64_t pid) {
  const std::string text = ReadFile("/proc/" + std::to_string(pid) + "/stat", kMostStat);
  std::size_t at = text.rfind(')');  // the second field may contain spaces
  for (int field = 2; field < 22 && at != text.npos; ++field) at = text.find(' ', at + 1);
  return at == text.npos ? "" : text.substr(at, text.find(' ', at + 1) - at);
}

}  // namespace

std::string TemplateKey(const abi::Launch& launch, bool uses_environment) {
  Facts facts;
  facts.Add("server", std::to_string(launch.server_pid) + " " + StartOf(launch.server_pid));
  facts.Add("namespace", LinkTarget("/proc/self/ns/pid"));
  facts.Add("user", std::to_string(geteuid()));
  facts.Add("stub", StateOf("/proc/self/exe"));
  facts.Add("backend", launch.backend_directory);
  facts.Add("runtime", launch.runtime_directory);
  facts.Add("runtime code", StateOf(launch.runtime_directory + "/model.py"));
  facts.Add("model", launch.model_file);
  facts.Add("folder", LinkTarget("/proc/self/cwd"));
  const std::string version = ParentOf(launch.model_file);
  Code code(facts);
  code.AddFolder(version, true);
  code.AddFolder(ParentOf(version), false);
  if (uses_environment) AddEnvironment(facts);
  AddVariables(facts);
  return facts.Hash();
}

}  // namespace envpack::front
