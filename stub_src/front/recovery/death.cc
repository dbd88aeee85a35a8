#include "front/recovery/death.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string_view>

#include "base/files.h"

namespace envpack::front {

namespace {

constexpr std::size_t kMostRead = 1 << 16;

std::string NameOf(int signal) {
  struct Named {
    int signal;
    const char* name;
  };
  constexpr Named kNames[] = {{SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
                              {SIGILL, "SIGILL"},   {SIGINT, "SIGINT"},   {SIGSEGV, "SIGSEGV"},
                              {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}, {SIGXCPU, "SIGXCPU"},
                              {SIGSYS, "SIGSYS"}};
  if (signal == SIGKILL) return "9 (SIGKILL, which the kernel sends when memory runs out)";
  for (const Named& named : kNames) {
    if (named.signal == signal) return std::to_string(signal) + " (" + named.name + ")";
  }
  return std::to_string(signal);
}

// "FILE:LINE in FUNCTION" of a line such as `  File "FILE", line LINE in FUNCTION`; empty for others.
std::string PlaceOf(std::string_view line, std::string_view* file) {
  constexpr std::string_view kBegin = "  File \"", kMiddle = "\", line ";
  const auto middle = line.find(kMiddle);
  if (line.compare(0, kBegin.size(), kBegin) != 0 || middle == std::string_view::npos) return {};
  *file = line.substr(kBegin.size(), middle - kBegin.size());
  const auto name = file->substr(file->rfind('/') + 1);
  return std::string(name) + ":" + std::string(line.substr(middle + kMiddle.size()));
}

// The traceback begins with the innermost call of the thread that crashed. An empty line ends it.
std::string FindPlace(std::string_view text, std::string_view model_file) {
  const auto begin = text.find("(most recent call first):");
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(text.find('\n', begin) + 1);
  std::string innermost;
  while (!text.empty()) {
    std::string_view file;
    std::string place = PlaceOf(TakePart(text, '\n'), &file);
    if (place.empty()) break;
    if (file == model_file) return place;
    if (innermost.empty()) innermost = std::move(place);
  }
  return innermost;
}

std::string Describe(int status) {
  if (!WIFSIGNALED(status) && !WIFEXITED(status)) return "ended, and its template does not say how";
  if (WIFSIGNALED(status)) return "was killed by signal " + NameOf(WTERMSIG(status));
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

CrashOutput::CrashOutput()
    : file_(std::make_shared<const Descriptor>(
          MakeMemoryFile("crash", "cannot create a memory file for crash reports"))) {}

std::string CrashOutput::DescribeEnd(int status, const std::string& model_file) {
  const std::string place = Pass(model_file);
  return Describe(status) + (place.empty() ? "" : " at " + place);
}

// Returns the line of Python that crashed, as in "model.py:12 in execute": the innermost one of `model_file`
// if there is one, else the innermost. Empty if there is no traceback.
std::string CrashOutput::Pass(const std::string& model_file) {
  const int file = file_->number();
  const std::string text = ReadAll(file, kMostRead, "cannot read a crash report");
  if (text.empty()) return {};
  const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(written);  // standard error may be closed
  static_cast<void>(ftruncate(file, 0) + lseek(file, 0, SEEK_SET));
  const auto current = text.find("Current thread 0x");  // behind the others if all threads are listed
  return FindPlace(std::string_view(text).substr(current != std::string::npos ? current : 0), model_file);
}

}  // namespace envpack::front
