// File descriptors and their errors.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace envpack {

// Whether the system says of a descriptor of ours that it is closed, or another file's.
inline bool IsTaken(int code) { return code == EBADF || code == ENOTSOCK; }

// Throws std::system_error; `what` says what cannot be done.
[[noreturn]] void FailBySystem(const std::string& what, int code = errno);

// Is closed when its owner is destroyed.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~Descriptor() { Close(); }

  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

  // Leaves closing to the caller.
  int Release() { return std::exchange(number_, -1); }

  void Close() {
    if (number_ >= 0) close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

// Whether there is something to read or to accept, or the other side has ended; waits up to `limit` for that.
bool IsReadable(int descriptor, std::chrono::milliseconds limit = std::chrono::milliseconds(0));

// Processes as descriptors (Linux 5.3 and later): a process id can become another process's, a pidfd cannot.
// Empty, with errno set, if the process does not exist or the kernel does not support this.
Descriptor OpenProcess(pid_t pid);
// Async-signal-safe. Does nothing if the process has ended.
void SignalProcess(int process, int signal) noexcept;
// Waits up to `limit` for the end.
inline bool HasEnded(int process, std::chrono::milliseconds limit = std::chrono::milliseconds(0)) {
  return IsReadable(process, limit);
}

// For files in memory: a name without use, all of a text, up to `most` bytes of what a file holds. Throw
// std::system_error; `what` says what cannot be done.
Descriptor MakeMemoryFile(const char* name, const std::string& what);
void WriteAt(int descriptor, std::string_view text, off_t offset, const std::string& what);
std::string ReadAll(int descriptor, std::size_t most, const std::string& what);

}  // namespace envpack
