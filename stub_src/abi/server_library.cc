#include "abi/server_library.h"

#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstddef>
#include <string_view>

#include "abi/elf_file.h"

namespace envpack::abi {

namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Compilers build the short version text from constants within instructions, one of which contains its first
// four characters. Returns nothing if several texts look like a version.
std::optional<std::string> VersionIn(std::string_view code) {
  constexpr std::size_t kLength = 4;
  std::optional<std::string> found;
  for (std::size_t dot = code.find('.', 1); dot != std::string_view::npos; dot = code.find('.', dot + 1)) {
    if (code[dot - 1] != '2' || dot - 1 + kLength > code.size()) continue;
    const std::string_view text = code.substr(dot - 1, kLength);
    if (!IsDigit(text[2]) || !IsDigit(text[3])) continue;
    if (found && *found != text) return std::nullopt;
    found = text;
  }
  return found;
}

// The constructor of the server, which contains the version, lies not far before the functions of the API,
// because the linker keeps the order of the source files. Searching megabytes of code takes milliseconds.
constexpr char kFirstOfTheApi[] = "TRITONSERVER_ApiVersion";
constexpr std::size_t kNear = 1 << 18;

std::optional<std::string> VersionOf(const ElfFile& file) {
  if (const auto api = file.Function(kFirstOfTheApi)) {
    const std::size_t begin = *api > kNear ? *api - kNear : 0;
    if (auto version = VersionIn(file.Code().substr(begin, *api - begin))) return version;
  }
  return VersionIn(file.Code());
}

// Calls `visit` with each line of a file in /proc until that returns false. Files there have no size, and the
// C library would read them in small parts.
template <typename Visit>
void ForEachLineOf(const std::string& path, Visit visit) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  std::string text;
  char part[1 << 14];
  for (bool goes_on = true; goes_on;) {
    const ssize_t count = read(descriptor, part, sizeof(part));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(part, static_cast<std::size_t>(count));
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); goes_on && end != std::string::npos;
         end = text.find('\n', begin)) {
      goes_on = visit(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
  }
  close(descriptor);
}

// Path of the server library of a process, or of its executable if it has none.
std::string ServerFile(std::int64_t server_pid) {
  const std::string process = "/proc/" + std::to_string(server_pid);
  std::string file = process + "/exe";
  ForEachLineOf(process + "/maps", [&](std::string_view line) {
    const std::size_t path = line.find('/');
    if (path == std::string_view::npos || line.find("/libtritonserver", path) == std::string_view::npos)
      return true;
    file = line.substr(path);
    return false;
  });
  return file;
}

}  // namespace

std::optional<LibraryVersion> ReadServerLibrary(std::int64_t server_pid) {
  const std::string path = ServerFile(server_pid);
  const ElfFile file(path);
  const auto version = VersionOf(file);
  if (!version) return std::nullopt;
  return LibraryVersion{path, *version};
}

}  // namespace envpack::abi
