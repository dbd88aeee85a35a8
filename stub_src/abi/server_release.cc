#include "abi/server_release.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "abi/values.h"
#include "base/descriptor.h"
#include "base/files.h"
#include "base/output.h"

namespace envpack::abi {

namespace {

// An ELF file for x86-64, mapped, since it has tens of megabytes and few pages are read. A file that is
// missing, invalid, or for another machine has no code and no functions.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (!file || fstat(file.number(), &status) != 0 || status.st_size <= 0) return;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
    if (data == MAP_FAILED) return;
    bytes_ = {static_cast<const char*>(data), size};
    ReadSegments();
  }

  ~ElfFile() {
    if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
  ElfFile(ElfFile&&) = delete;

  // The first segment that can be executed.
  std::string_view Code() const { return code_; }

  // Where an exported function begins in Code().
  std::optional<std::size_t> Function(std::string_view name) const {
    if (code_.empty()) return std::nullopt;
    const auto header = At<Elf64_Ehdr>(0);
    const auto section = [&](std::size_t index) {
      return At<Elf64_Shdr>(header->e_shoff + index * sizeof(Elf64_Shdr));
    };
    for (std::size_t i = 0; i < header->e_shnum; ++i) {
      const auto symbols = section(i);
      if (!symbols || symbols->sh_type != SHT_DYNSYM) continue;
      const auto names = section(symbols->sh_link);
      for (std::size_t at = 0; at < symbols->sh_size; at += sizeof(Elf64_Sym)) {
        const auto symbol = At<Elf64_Sym>(symbols->sh_offset + at);
        if (!names || !symbol) return std::nullopt;
        const std::size_t offset = symbol->st_value - code_address_;
        if (offset < code_.size() && IsNamed(names->sh_offset + symbol->st_name, name)) return offset;
      }
    }
    return std::nullopt;
  }

 private:
  template <typename Record>
  std::optional<Record> At(std::size_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(Record)) return std::nullopt;
    Record record;
    std::memcpy(&record, bytes_.data() + offset, sizeof(record));
    return record;
  }

  void ReadSegments() {
    const auto header = At<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return;
    if (header->e_machine != EM_X86_64) return;
    for (std::size_t i = 0; i < header->e_phnum; ++i) {
      const auto segment = At<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr));
      if (!segment) return;
      if (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0 || !code_.empty()) continue;
      if (segment->p_offset > bytes_.size() || bytes_.size() - segment->p_offset < segment->p_filesz) return;
      code_ = bytes_.substr(segment->p_offset, segment->p_filesz);
      code_address_ = segment->p_vaddr;
    }
  }

  bool IsNamed(std::size_t offset, std::string_view name) const {
    if (offset > bytes_.size() || bytes_.size() - offset <= name.size()) return false;
    return bytes_.substr(offset, name.size()) == name && bytes_[offset + name.size()] == '\0';
  }

  std::string_view bytes_;
  std::string_view code_;
  std::size_t code_address_ = 0;
};

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

constexpr std::size_t kMostMaps = std::size_t{64} << 20, kMostOfVersion = 1 << 12;  // bytes of a file

std::optional<std::string> VersionOf(const ElfFile& file) {
  if (const auto api = file.Function(kFirstOfTheApi)) {
    const std::size_t begin = *api > kNear ? *api - kNear : 0;
    if (auto version = VersionIn(file.Code().substr(begin, *api - begin))) return version;
  }
  return VersionIn(file.Code());
}

// Path of the server library of a process, or of its executable if it has none.
std::string ServerFile(std::int64_t server_pid) {
  const std::string process = "/proc/" + std::to_string(server_pid);
  const std::string maps = ReadFile(process + "/maps", kMostMaps);
  for (std::string_view rest = maps; !rest.empty();) {
    const std::string_view line = TakePart(rest, '\n');
    const std::string_view path = line.substr(std::min(line.find('/'), line.size()));
    if (path.find("/libtritonserver") != path.npos) return std::string(path);
  }
  return process + "/exe";
}

constexpr char kExplicit[] = "ENVPACK_TRITON_RELEASE";
constexpr Release kFirstWithPlatform = 2307;     // as a ninth argument
constexpr Release kFirstWithUuidRegions = 2404;  // numbered before

bool IsDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsDigit);
}

// "24.10", also with a suffix ("24.10-py3"), as a number; 0 if it is not a release.
Release ParseRelease(std::string_view text) {
  constexpr std::size_t kLength = 5;
  if (text.size() < kLength || text[2] != '.') return 0;
  if (!IsDigits(text.substr(0, 2)) || !IsDigits(text.substr(3, 2))) return 0;
  if (text.size() > kLength && IsDigits(text.substr(kLength, 1))) return 0;
  return std::atoi(std::string(text.substr(0, 2)).c_str()) * 100 +
         std::atoi(std::string(text.substr(3, 2)).c_str());
}

Evidence FromRelease(const std::string& source, const std::string& text, bool is_choice) {
  const Release release = ParseRelease(text);
  if (release == 0) {
    throw ReleaseError(source + " is '" + text + "', which is not a Triton release; write it like " +
                       NameOf(kNewest));
  }
  if (release < kOldest) {
    throw ReleaseError(source + " names Triton " + text + "; this stub supports " + NameOf(kOldest) +
                       " and later");
  }
  const bool is_newer = release > kNewest;
  return {source, text, is_newer ? kNewest : release, is_newer, is_choice};
}

// First line of a file, without trailing blanks; none if the file cannot be read or is empty.
std::optional<std::string> FirstLine(const std::string& path) {
  const std::string text = ReadFile(path, kMostOfVersion);
  if (text.empty()) return std::nullopt;
  const std::string line = text.substr(0, text.find('\n'));
  return line.substr(0, line.find_last_not_of(" \t\r") + 1);
}

// The version of the library that the server runs, without the last part ("2.51"), if it can be determined.
std::optional<Evidence> FromLibrary(const Launch& launch) {
  const std::string path = ServerFile(launch.server_pid);
  const auto version = VersionOf(ElfFile(path));
  return version ? std::optional(FromServerVersion(path, *version)) : std::nullopt;
}

// The backend directory is <server>/backends/python.
std::optional<Evidence> FromVersionFile(const Launch& launch) {
  const std::string file = launch.backend_directory + "/../../TRITON_VERSION";
  const auto text = FirstLine(file);
  return text ? std::optional(FromServerVersion(file, *text)) : std::nullopt;
}

std::vector<Evidence> CollectEvidence(const Launch& launch, const std::string& stub, Release only) {
  std::vector<Evidence> found;
  if (const auto text = Variable(kExplicit)) found.push_back(FromRelease(kExplicit, *text, true));
  if (const auto text = FirstLine(stub + ".release")) {
    found.push_back(FromRelease(stub + ".release", *text, true));
  }
  if (const auto text = Variable("NVIDIA_TRITON_SERVER_VERSION")) {
    found.push_back(FromRelease("NVIDIA_TRITON_SERVER_VERSION", *text, false));
  }
  if (const auto text = Variable("TRITON_SERVER_VERSION")) {
    found.push_back(FromServerVersion("TRITON_SERVER_VERSION", *text));
  }
  if (auto evidence = FromVersionFile(launch)) found.push_back(*std::move(evidence));
  if (auto evidence = FromLibrary(launch)) found.push_back(*std::move(evidence));
  if (only != 0) found.push_back({"the build of this stub", NameOf(only), only, false, true});
  return found;
}

std::string Describe(const Evidence& evidence) {
  return evidence.source + " names Triton " + evidence.value +
         (evidence.value == NameOf(evidence.release) ? "" : " (" + NameOf(evidence.release) + ")");
}

// A server newer than all known ones agrees with every choice of an epoch.
bool Agree(const Evidence& left, const Evidence& right) {
  if (EpochOf(left.release) == EpochOf(right.release)) return true;
  return left.is_newer_than_known != right.is_newer_than_known &&
         (left.is_newer_than_known ? right : left).is_choice;
}

bool IsUuid(std::string_view text) {
  constexpr std::size_t kLength = 36;
  return text.size() == kLength && std::count(text.begin(), text.end(), '-') == 4;
}

// Compares the release with what the command line shows of the server.
void CheckCommandLine(const Launch& launch, const Evidence& evidence) {
  const auto reject = [&](const std::string& reason) {
    throw ReleaseError(Describe(evidence) +
                       ", but the server that started this stub is of another release: " + reason);
  };
  if (launch.has_last_argument != (evidence.release >= kFirstWithPlatform)) {
    reject(std::string("it passed ") + (launch.has_last_argument ? "9" : "8") + " arguments");
  }
  const std::string_view name = launch.region;
  const std::string_view end = name.substr(name.rfind('_') + 1);
  const bool is_late = evidence.release >= kFirstWithUuidRegions;
  if (is_late ? IsDigits(end) && end.size() < 8 : IsUuid(end)) {
    reject("its regions are named like " + std::string(name));
  }
}

}  // namespace

Evidence FromServerVersion(const std::string& source, const std::string& version) {
  const std::size_t dot = version.find('.');
  const std::string_view rest =
      std::string_view(version).substr(dot == std::string::npos ? version.size() : dot + 1);
  const std::string minor(rest.substr(0, rest.find_first_not_of("0123456789")));
  const std::string start = "2." + minor + ".";
  if (minor.empty() || version.compare(0, 2, "2.") != 0) {
    throw ReleaseError(source + " is '" + version + "', which is not a version of a Triton server");
  }
  const KnownRelease* found = nullptr;
  for (const KnownRelease& known : kReleases) {
    const std::string server(known.server);
    if (server.compare(0, start.size(), start) != 0) continue;
    if (found == nullptr || version.compare(0, server.size(), server) == 0) found = &known;
  }
  if (found != nullptr) return {source, version, found->release};
  const std::string oldest(kReleases[0].server);
  if (std::atoi(minor.c_str()) < std::atoi(oldest.c_str() + 2)) {
    throw ReleaseError(source + " names server " + version + "; this stub supports " + oldest + " (" +
                       NameOf(kOldest) + ") and later");
  }
  return {source, version, kNewest, true};
}

std::optional<Release> ReportedRelease(const Launch& launch) {
  std::optional<Release> release;
  const auto find = [&] {
    auto found = FromLibrary(launch);
    if (!found) found = FromVersionFile(launch);
    if (!found) return;
    CheckCommandLine(launch, *found);
    release = found->release;
  };
  return Attempt(find) ? std::nullopt : release;
}

Release FindServerRelease(const Launch& launch, const std::string& stub, Release only) {
  const std::vector<Evidence> found = CollectEvidence(launch, stub, only);
  if (found.empty()) {
    throw ReleaseError("the Triton release of the server is unknown; set " + std::string(kExplicit) +
                       ", or write it to " + stub + ".release");
  }
  const Evidence& first = found.front();
  for (const Evidence& other : found) {
    if (!Agree(first, other)) {
      throw ReleaseError(Describe(first) + ", but " + Describe(other) +
                         "; the wrong one would crash the server");
    }
  }
  CheckCommandLine(launch, first);
  const auto is_newer = [](const Evidence& each) { return each.is_newer_than_known; };
  if (const auto newer = std::find_if(found.begin(), found.end(), is_newer); newer != found.end()) {
    Print(newer->source + " names " + newer->value +
          ", which is newer than this stub: the last release that it knows is " + NameOf(kNewest) +
          "; using the protocol of " + NameOf(first.release));
  }
  return first.release;
}

}  // namespace envpack::abi
