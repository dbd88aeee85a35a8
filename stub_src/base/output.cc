#include "base/output.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace envpack {

namespace {

constexpr std::chrono::seconds kTimeout(1);

struct Flushed {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
};

}  // namespace

void Print(std::string_view what, std::string_view why) {
  const auto size = [](std::string_view text) { return static_cast<int>(text.size()); };
  std::fprintf(stderr, "envpack stub: %.*s%s%.*s\n", size(what), what.data(), why.empty() ? "" : ": ",
               size(why), why.data());
}

std::string Beginning(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (text[most] & 0xC0) == 0x80) --most;  // within a character
  return text.substr(0, most) + "...";
}

// glibc locks one stream after the other, the standard ones last: the thread may never come to them, nor end.
void FlushOutput() noexcept {
  for (std::FILE* stream : {stdout, stderr}) {
    if (ftrylockfile(stream) != 0) continue;
    std::fflush(stream);
    funlockfile(stream);
  }
  try {
    const auto flushed = std::make_shared<Flushed>();
    std::thread([flushed] {
      std::fflush(nullptr);
      const std::lock_guard lock(flushed->mutex);
      flushed->is_done = true;
      flushed->changed.notify_all();
    }).detach();
    std::unique_lock lock(flushed->mutex);
    flushed->changed.wait_for(lock, kTimeout, [&] { return flushed->is_done; });
  } catch (const std::system_error&) {
    // There is no room for a thread.
  }
}

void ExitFlushed(int status) {
  FlushOutput();
  _exit(status);
}

}  // namespace envpack
