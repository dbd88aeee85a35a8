#include "base/files.h"

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace envpack {

std::optional<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string ReadFile(const std::string& path, std::size_t most) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  constexpr std::size_t kPart = 1 << 16;
  std::string text;
  while (file != nullptr && text.size() < most) {
    const std::size_t before = text.size();
    text.resize(before + std::min(kPart, most - before));
    const std::size_t read = std::fread(&text[before], 1, text.size() - before, file.get());
    text.resize(before + read);
    if (read == 0) break;
  }
  return text;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), &closedir);
  std::vector<std::string> names;
  while (open != nullptr) {
    const dirent* entry = readdir(open.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

std::string FolderOnPath(const std::string& name, int mode) {
  const std::string path = Variable("PATH").value_or("");
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::string folder(TakePart(rest, ':'));
    if (access((folder + "/" + name).c_str(), mode) == 0) return folder;
  }
  return {};
}

std::string LinkTarget(const std::string& path) {
  std::array<char, PATH_MAX> target;
  const ssize_t size = readlink(path.c_str(), target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : std::string();
}

}  // namespace envpack
