#include "base/descriptor.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <system_error>

namespace envpack {

// System calls, which older headers do not have. The same on every architecture.
constexpr long kPidfdSendSignal = 424, kPidfdOpen = 434;

void FailBySystem(const std::string& what, int code) {
  const std::string cause = IsTaken(code) ? "the model closes descriptors that are not its own: " : "";
  throw std::system_error(code, std::generic_category(), cause + what);
}

bool IsReadable(int descriptor, std::chrono::milliseconds limit) {
  pollfd which{descriptor, POLLIN, 0};
  return poll(&which, 1, static_cast<int>(limit.count())) > 0;
}

Descriptor OpenProcess(pid_t pid) { return Descriptor(static_cast<int>(syscall(kPidfdOpen, pid, 0))); }

void SignalProcess(int process, int signal) noexcept {
  syscall(kPidfdSendSignal, process, signal, nullptr, 0);
}

Descriptor MakeMemoryFile(const char* name, const std::string& what) {
  Descriptor file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) FailBySystem(what);
  return file;
}

void WriteAt(int descriptor, std::string_view text, off_t offset, const std::string& what) {
  while (!text.empty()) {
    const ssize_t written = pwrite(descriptor, text.data(), text.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) FailBySystem(what);
    text.remove_prefix(static_cast<std::size_t>(written));
    offset += written;
  }
}

std::string ReadAll(int descriptor, std::size_t most, const std::string& what) {
  struct stat facts{};
  if (fstat(descriptor, &facts) != 0) FailBySystem(what);
  std::string text(std::min(static_cast<std::size_t>(facts.st_size), most), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = pread(descriptor, &text[done], text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) FailBySystem(what);
    if (got == 0) text.resize(done);  // cut off meanwhile
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace envpack
