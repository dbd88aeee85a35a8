#include "channel/guarded_child.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <variant>

#include "channel/refusal.h"
#include "output.h"

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

std::string DescribeExit(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + NameOf(WTERMSIG(status));
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

const char* DescribeStep(Step step) {
  switch (step) {
    case Step::kImport:
      return "the model was being imported";
    case Step::kComplete:
      return "auto_complete_config() was running";
    default:
      return "Python was starting";
  }
}

[[noreturn]] void RunChild(pid_t parent, Report& report, const std::function<void(Report&)>& work) {
  // The server kills the parent only.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  try {
    work(report);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    FlushOutput();
    _exit(1);
  }
  FlushOutput();
  _exit(0);
}

}  // namespace

Report::Report() : descriptor_(memfd_create("report", MFD_CLOEXEC)) {
  if (descriptor_ < 0) Fail("cannot create a memory file for the report of the model's process");
}

Report::~Report() { close(descriptor_); }

void Report::Reach(Step step) {
  const char mark = static_cast<char>(step);
  WriteAt(descriptor_, {&mark, 1}, 0);
}

void Report::Finish(const abi::AutoCompleteAnswer& answer) {
  const auto* failure = std::get_if<abi::Failure>(&answer);
  WriteAt(descriptor_, failure != nullptr ? failure->text : std::get<std::string>(answer), 1);
  WriteAt(descriptor_, {failure != nullptr ? &kFailed : &kCompleted, 1}, 0);
}

abi::AutoCompleteAnswer Report::Read(int status) const {
  const std::string text = ReadAll(descriptor_);
  const char mark = text.empty() ? '\0' : text.front();
  if (mark == kCompleted) return text.substr(1);
  if (mark == kFailed) return abi::Failure{text.substr(1)};
  const auto step = static_cast<Step>(mark);
  const std::string reason = "The model's process " + DescribeExit(status) + " while " + DescribeStep(step) +
                             ". See its output in the server's log.";
  const bool had_started = step == Step::kImport || step == Step::kComplete;
  return abi::Failure{had_started ? reason : StartFailure(reason)};
}

GuardedChild::GuardedChild(const std::function<void(Report&)>& work) {
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) Fail("cannot create a process to complete the configuration");
  if (pid_ == 0) RunChild(parent, report_, work);
}

abi::AutoCompleteAnswer GuardedChild::Wait() const {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) Fail("cannot wait for the model's process");
  }
  return report_.Read(status);
}

}  // namespace envpack::channel
