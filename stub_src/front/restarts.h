// How often a dead worker is replaced, and what users set.
#pragma once

#include <chrono>
#include <deque>
#include <optional>

namespace envpack::front {

// ENVPACK_RESTARTS and ENVPACK_EXECUTE_TIMEOUT.
struct Settings {
  std::size_t most_deaths = 3;                             // within a minute; 0 for no restart at all
  std::optional<std::chrono::milliseconds> execute_limit;  // none by default

  // Throws std::invalid_argument with a message that names the variable.
  static Settings FromEnvironment();
};

// Counts deaths.
class Restarts {
 public:
  explicit Restarts(std::size_t most_deaths) : most_deaths_(most_deaths) {}

  // Counts a death. Returns whether the worker is to be replaced.
  bool Allow();

  // How many workers have been replaced.
  std::size_t count() const { return count_; }

 private:
  using Clock = std::chrono::steady_clock;

  const std::size_t most_deaths_;
  std::deque<Clock::time_point> deaths_;  // of the last minute
  std::size_t count_ = 0;
};

}  // namespace envpack::front
