#include "channel/log_forwarder.h"

#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <exception>
#include <utility>

#include "base/threads.h"

namespace envpack::channel {

namespace {

// Indexed by abi::LogLevel.
constexpr char kLevelLetters[] = {'I', 'W', 'E', 'I'};

// What may wait for the server.
constexpr std::size_t kMostLines = 4096;
constexpr std::size_t kMostBytes = 4 << 20;

}  // namespace

void LogToStderr(const abi::LogLine& line) {
  timeval now{};
  gettimeofday(&now, nullptr);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  std::fprintf(stderr, "%c%02d%02d %02d:%02d:%02d.%06ld %d %s:%d]  %s\n",
               kLevelLetters[static_cast<int>(line.level)], parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
               parts.tm_min, parts.tm_sec, static_cast<long>(now.tv_usec), getpid(), line.file.c_str(),
               line.line, line.message.c_str());
}

LogForwarder::LogForwarder(abi::Wire& wire)
    : wire_(wire), thread_(StartThread("pbstub-log", [this] { Run(); })) {}

LogForwarder::~LogForwarder() { Stop(); }

void LogForwarder::Stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stop_, true)) return;
  }
  changed_.notify_all();
  has_room_.notify_all();
  thread_.join();
}

bool LogForwarder::HasRoom() const {
  return lines_.empty() || (lines_.size() < kMostLines && bytes_ < kMostBytes);
}

// The mutex must be held.
void LogForwarder::Add(abi::LogLine line) {
  bytes_ += line.message.size();
  lines_.push_back(std::move(line));
  changed_.notify_one();
}

bool LogForwarder::TryWrite(abi::LogLine& line) {
  if (wire_.LogsAtOnce() || !owner_process_.IsThisProcess()) return false;
  const std::lock_guard lock(mutex_);
  if (stop_ || !HasRoom()) return false;
  Add(std::move(line));
  return true;
}

void LogForwarder::Write(abi::LogLine line) {
  if (!owner_process_.IsThisProcess()) {
    // A forked process does not have the thread.
    LogToStderr(line);
    return;
  }
  std::unique_lock lock(mutex_);
  has_room_.wait(lock, [this] { return stop_ || HasRoom(); });
  const bool stopped = stop_;
  if (!stopped && !wire_.LogsAtOnce()) return Add(std::move(line));
  lock.unlock();
  if (stopped) return LogToStderr(line);
  Send(line);
}

void LogForwarder::Send(const abi::LogLine& line) {
  try {
    wire_.Log(line);
  } catch (const std::exception&) {
    // Keep the line and the process when the region is full.
    LogToStderr(line);
  }
}

void LogForwarder::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !lines_.empty(); });
    if (lines_.empty()) return;
    const abi::LogLine line = std::move(lines_.front());
    lines_.pop_front();
    bytes_ -= line.message.size();
    has_room_.notify_one();
    lock.unlock();
    Send(line);
    lock.lock();
  }
}

}  // namespace envpack::channel
