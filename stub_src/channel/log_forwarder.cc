#include "channel/log_forwarder.h"

#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <exception>
#include <utility>

namespace envpack::channel {

namespace {

// Indexed by abi::LogLevel.
constexpr char kLevelLetters[] = {'I', 'W', 'E', 'I'};

}  // namespace

void StderrLog::Write(abi::LogLine line) {
  timeval now{};
  gettimeofday(&now, nullptr);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  std::fprintf(stderr, "%c%02d%02d %02d:%02d:%02d.%06ld %d %s:%d]  %s\n",
               kLevelLetters[static_cast<int>(line.level)], parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
               parts.tm_min, parts.tm_sec, static_cast<long>(now.tv_usec), getpid(), line.file.c_str(),
               line.line, line.message.c_str());
}

LogForwarder::LogForwarder(abi::Wire& wire) : wire_(wire), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "pbstub-log");
}

LogForwarder::~LogForwarder() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LogForwarder::Write(abi::LogLine line) {
  if (!owner_process_.IsThisProcess()) {
    // A forked process does not have the thread.
    StderrLog().Write(std::move(line));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  changed_.notify_one();
}

void LogForwarder::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !lines_.empty(); });
    if (lines_.empty()) return;
    abi::LogLine line = std::move(lines_.front());
    lines_.pop_front();
    lock.unlock();
    try {
      wire_.Log(line);
    } catch (const std::exception&) {
      // Keep the line and the process when the region is full.
      StderrLog().Write(std::move(line));
    }
    lock.lock();
  }
}

}  // namespace envpack::channel
