#include "channel/report.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <variant>

namespace envpack::channel {

namespace {

// The first byte of a report is a Step or one of these, which are followed by a text. It is written last.
constexpr char kCompleted = 'C';
constexpr char kFailed = 'F';

[[noreturn]] void Fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

void WriteAt(int descriptor, std::string_view data, off_t offset) {
  while (!data.empty()) {
    const ssize_t written = pwrite(descriptor, data.data(), data.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) Fail("cannot write the report of the model's process");
    data.remove_prefix(static_cast<std::size_t>(written));
    offset += written;
  }
}

std::string ReadAll(int descriptor) {
  struct stat facts{};
  if (fstat(descriptor, &facts) != 0) Fail("cannot read the report of the model's process");
  std::string text(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = pread(descriptor, &text[done], text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) Fail("cannot read the report of the model's process");
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace

const char* Describe(Step step) {
  switch (step) {
    case Step::kImport:
      return "the model was being imported";
    case Step::kComplete:
      return "auto_complete_config() was running";
    case Step::kInitialize:
      return "initialize() was running";
    default:
      return "Python was starting";
  }
}

Report::Report() : file_(memfd_create("report", MFD_CLOEXEC)) {
  if (!file_) Fail("cannot create a memory file for the report of the model's process");
}

void Report::Reach(Step step) {
  const char mark = static_cast<char>(step);
  WriteAt(descriptor(), {&mark, 1}, 0);
}

void Report::Finish(const abi::AutoCompleteAnswer& answer) {
  const auto* failure = std::get_if<abi::Failure>(&answer);
  WriteAt(descriptor(), failure != nullptr ? failure->text : std::get<std::string>(answer), 1);
  WriteAt(descriptor(), {failure != nullptr ? &kFailed : &kCompleted, 1}, 0);
}

std::optional<abi::AutoCompleteAnswer> Report::Answer() const {
  const std::string text = ReadAll(descriptor());
  const char mark = text.empty() ? '\0' : text.front();
  if (mark == kCompleted) return text.substr(1);
  if (mark == kFailed) return abi::Failure{text.substr(1)};
  return std::nullopt;
}

Step Report::Reached() const {
  const std::string text = ReadAll(descriptor());
  return text.empty() ? Step::kStart : static_cast<Step>(text.front());
}

}  // namespace envpack::channel
