#include "abi/server_library.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "abi/lines.h"

namespace envpack::abi {

namespace {

// A file, mapped for reading; empty if that cannot be done.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    struct stat status{};
    if (fstat(descriptor, &status) == 0 && status.st_size > 0) {
      const auto size = static_cast<std::size_t>(status.st_size);
      void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
      if (data != MAP_FAILED) bytes_ = {static_cast<const char*>(data), size};
    }
    close(descriptor);
  }
  ~MappedFile() {
    if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
};

template <typename Record>
std::optional<Record> RecordAt(std::string_view bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Record)) return std::nullopt;
  Record record;
  std::memcpy(&record, bytes.data() + offset, sizeof(record));
  return record;
}

// The instructions of an ELF file for x86-64; nothing of others, whose instructions have no room for a text.
std::string_view CodeOf(std::string_view file) {
  const auto header = RecordAt<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (header->e_machine != EM_X86_64) return {};
  for (std::size_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = RecordAt<Elf64_Phdr>(file, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment || segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0) continue;
    if (segment->p_offset > file.size() || file.size() - segment->p_offset < segment->p_filesz) return {};
    return file.substr(segment->p_offset, segment->p_filesz);
  }
  return {};
}

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// The version is a short text, which compilers put together from constants within instructions: its first
// four characters are one of them. Nothing else in the code looks like that, or we do not know.
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

// Path of the library by which the process is a server, or of its program if it has none.
std::string ServerFile(std::int64_t server_pid) {
  const std::string process = "/proc/" + std::to_string(server_pid);
  std::string file = process + "/exe";
  ForEachLine(process + "/maps", [&](const std::string& line) {
    const std::size_t path = line.find('/');
    if (path == std::string::npos || line.find("/libtritonserver", path) == std::string::npos) return true;
    file = line.substr(path);
    return false;
  });
  return file;
}

}  // namespace

std::optional<LibraryVersion> ReadServerLibrary(std::int64_t server_pid) {
  const std::string path = ServerFile(server_pid);
  const MappedFile file(path);
  const auto version = VersionIn(CodeOf(file.bytes()));
  if (!version) return std::nullopt;
  return LibraryVersion{path, *version};
}

}  // namespace envpack::abi
