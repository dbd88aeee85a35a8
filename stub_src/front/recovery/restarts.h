// How often a dead worker is replaced.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>

namespace envpack::front {

// Counts deaths.
class Restarts {
 public:
  // `most_deaths` within a minute; 0 for no restart at all.
  explicit Restarts(std::size_t most_deaths) : most_deaths_(most_deaths) {}

  // Counts a death. Returns whether the worker is to be replaced.
  bool Allow() {
    const auto now = Clock::now();
    deaths_.push_back(now);
    while (deaths_.front() < now - std::chrono::minutes(1)) deaths_.pop_front();
    if (deaths_.size() >= most_deaths_) return false;
    ++count_;
    return true;
  }

  // How many workers have been replaced.
  std::size_t count() const { return count_; }

 private:
  using Clock = std::chrono::steady_clock;

  const std::size_t most_deaths_;
  std::deque<Clock::time_point> deaths_;  // of the last minute
  std::size_t count_ = 0;
};

}  // namespace envpack::front
