// A library or executable, read as a file.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace envpack::abi {

// An ELF file for x86-64. Maps it and reads only the pages that it is asked for. A file that is missing,
// invalid, or for another machine has no code and no functions.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path);
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  // The first segment that can be executed.
  std::string_view Code() const { return code_; }

  // Where an exported function begins in Code().
  std::optional<std::size_t> Function(std::string_view name) const;

 private:
  template <typename Record>
  std::optional<Record> At(std::size_t offset) const;
  std::optional<std::size_t> OffsetOf(std::size_t address) const;
  bool IsNamed(std::size_t offset, std::string_view name) const;
  void ReadSegments();

  std::string_view bytes_;
  std::string_view code_;
  std::size_t code_address_ = 0;
  std::size_t dynamic_ = 0;  // offset, 0 for none
};

}  // namespace envpack::abi
