#include "front/restarts.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace envpack::front {

namespace {

constexpr std::chrono::minutes kWindow(1);
constexpr double kMostSeconds = 1e6;

template <typename Number>
bool Parse(const char* text, Number* number) {
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, *number);
  return result.ec == std::errc() && result.ptr == end;
}

// Not std::from_chars, which some C++ libraries do not have for floating point numbers.
bool ParseSeconds(const char* text, double* seconds) {
  char* end = nullptr;
  *seconds = std::strtod(text, &end);
  return end != text && *end == '\0' && std::isfinite(*seconds) && *seconds >= 0 && *seconds <= kMostSeconds;
}

}  // namespace

Settings Settings::FromEnvironment() {
  Settings settings;
  if (const char* text = std::getenv("ENVPACK_RESTARTS");
      text != nullptr && !Parse(text, &settings.most_deaths)) {
    throw std::invalid_argument(std::string("ENVPACK_RESTARTS is not a number: '") + text +
                                "'. It says how often a model may die within a minute; 0 for no restart.");
  }
  if (const char* text = std::getenv("ENVPACK_EXECUTE_TIMEOUT"); text != nullptr) {
    double seconds = 0;
    if (!ParseSeconds(text, &seconds)) {
      throw std::invalid_argument(std::string("ENVPACK_EXECUTE_TIMEOUT is not a number of seconds: '") +
                                  text + "'");
    }
    if (seconds > 0) settings.execute_limit = std::chrono::milliseconds(std::lround(seconds * 1000));
  }
  return settings;
}

bool Restarts::Allow() {
  const auto now = Clock::now();
  deaths_.push_back(now);
  while (deaths_.front() < now - kWindow) deaths_.pop_front();
  if (deaths_.size() >= most_deaths_) return false;
  ++count_;
  return true;
}

}  // namespace envpack::front
