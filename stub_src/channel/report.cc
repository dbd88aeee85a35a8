#include "channel/report.h"

#include <sys/resource.h>

#include <string>
#include <variant>

namespace envpack::channel {

namespace {

// The first byte of a report is a Step or one of these, which are followed by a text. It is written last.
constexpr char kCompleted = 'C';
constexpr char kFailed = 'F';

constexpr std::size_t kMost = std::size_t{64} << 20;  // a model may have enlarged the file

// A model may have limited the size of files. The hard limit remains.
class SoftLimitLifted {
 public:
  SoftLimitLifted() {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lifted{before_.rlim_max, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lifted);
  }
  ~SoftLimitLifted() { setrlimit(RLIMIT_FSIZE, &before_); }
  SoftLimitLifted(SoftLimitLifted&&) = delete;

 private:
  rlimit before_{};
};

constexpr char kCannotWrite[] = "cannot write the report of the model's process";
constexpr char kCannotRead[] = "cannot read the report of the model's process";

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

Report::Report()
    : file_(MakeMemoryFile("report", "cannot create a memory file for the report of the model's process")) {}

void Report::Reach(Step step) {
  const SoftLimitLifted lifted;
  const char mark = static_cast<char>(step);
  WriteAt(descriptor(), {&mark, 1}, 0, kCannotWrite);
}

void Report::Finish(const abi::AutoCompleteAnswer& answer) {
  const SoftLimitLifted lifted;
  const auto* failure = std::get_if<abi::Failure>(&answer);
  WriteAt(descriptor(), failure != nullptr ? failure->text : std::get<std::string>(answer), 1, kCannotWrite);
  WriteAt(descriptor(), {failure != nullptr ? &kFailed : &kCompleted, 1}, 0, kCannotWrite);
}

std::optional<abi::AutoCompleteAnswer> Report::Answer() const {
  const std::string text = ReadAll(descriptor(), kMost, kCannotRead);
  const char mark = text.empty() ? '\0' : text.front();
  if (mark == kCompleted) return text.substr(1);
  if (mark == kFailed) return abi::Failure{text.substr(1)};
  return std::nullopt;
}

Step Report::Reached() const {
  const std::string text = ReadAll(descriptor(), 1, kCannotRead);
  return text.empty() ? Step::kStart : static_cast<Step>(text.front());
}

}  // namespace envpack::channel
