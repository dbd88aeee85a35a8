#include "abi/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>

#include "base/descriptor.h"

namespace envpack::abi {

namespace {

// The hash function of DT_GNU_HASH.
std::uint32_t Hash(std::string_view name) {
  std::uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

struct HashTable {
  std::uint32_t buckets;
  std::uint32_t first_symbol;
  std::uint32_t filter_words;
  std::uint32_t filter_shift;
};

constexpr std::size_t kFilterWord = 8;
constexpr std::size_t kMostEntries = 1 << 12;  // of the dynamic section, and of a bucket

}  // namespace

ElfFile::ElfFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  if (!file || fstat(file.number(), &status) != 0 || status.st_size <= 0) return;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (data == MAP_FAILED) return;
  bytes_ = {static_cast<const char*>(data), size};
  ReadSegments();
}

ElfFile::~ElfFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

template <typename Record>
std::optional<Record> ElfFile::At(std::size_t offset) const {
  if (offset > bytes_.size() || bytes_.size() - offset < sizeof(Record)) return std::nullopt;
  Record record;
  std::memcpy(&record, bytes_.data() + offset, sizeof(record));
  return record;
}

void ElfFile::ReadSegments() {
  const auto header = At<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return;
  if (header->e_machine != EM_X86_64) return;
  for (std::size_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = At<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) return;
    if (segment->p_type == PT_DYNAMIC) dynamic_ = segment->p_offset;
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0 || !code_.empty()) continue;
    if (segment->p_offset > bytes_.size() || bytes_.size() - segment->p_offset < segment->p_filesz) return;
    code_ = bytes_.substr(segment->p_offset, segment->p_filesz);
    code_address_ = segment->p_vaddr;
  }
}

// The offset in the file of an address in memory.
std::optional<std::size_t> ElfFile::OffsetOf(std::size_t address) const {
  const auto header = At<Elf64_Ehdr>(0);
  for (std::size_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = At<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) return std::nullopt;
    if (segment->p_type != PT_LOAD || address < segment->p_vaddr) continue;
    if (address - segment->p_vaddr < segment->p_filesz)
      return segment->p_offset + (address - segment->p_vaddr);
  }
  return std::nullopt;
}

bool ElfFile::IsNamed(std::size_t offset, std::string_view name) const {
  if (offset > bytes_.size() || bytes_.size() - offset <= name.size()) return false;
  return bytes_.substr(offset, name.size()) == name && bytes_[offset + name.size()] == '\0';
}

std::optional<std::size_t> ElfFile::Function(std::string_view name) const {
  if (code_.empty() || dynamic_ == 0) return std::nullopt;
  std::optional<std::size_t> hashes, symbols, names;
  for (std::size_t i = 0; i < kMostEntries; ++i) {
    const auto entry = At<Elf64_Dyn>(dynamic_ + i * sizeof(Elf64_Dyn));
    if (!entry || entry->d_tag == DT_NULL) break;
    if (entry->d_tag == DT_GNU_HASH) hashes = OffsetOf(entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) symbols = OffsetOf(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) names = OffsetOf(entry->d_un.d_ptr);
  }
  if (!hashes || !symbols || !names) return std::nullopt;
  const auto table = At<HashTable>(*hashes);
  if (!table || table->buckets == 0) return std::nullopt;
  const std::size_t buckets = *hashes + sizeof(HashTable) + table->filter_words * kFilterWord;
  const std::size_t chains = buckets + table->buckets * sizeof(std::uint32_t);
  const std::uint32_t hash = Hash(name);
  const auto first = At<std::uint32_t>(buckets + hash % table->buckets * sizeof(std::uint32_t));
  if (!first || *first < table->first_symbol) return std::nullopt;
  // The lowest bit of a hash marks the last symbol of its bucket.
  for (std::size_t i = *first; i < *first + kMostEntries; ++i) {
    const auto found = At<std::uint32_t>(chains + (i - table->first_symbol) * sizeof(std::uint32_t));
    const auto symbol = At<Elf64_Sym>(*symbols + i * sizeof(Elf64_Sym));
    if (!found || !symbol) return std::nullopt;
    if ((*found | 1) == (hash | 1) && IsNamed(*names + symbol->st_name, name)) {
      const std::size_t offset = symbol->st_value - code_address_;
      if (symbol->st_value < code_address_ || offset >= code_.size()) return std::nullopt;
      return offset;
    }
    if ((*found & 1) != 0) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace envpack::abi
