#include "front/recovery/restarts.h"

namespace envpack::front {

namespace {

constexpr std::chrono::minutes kWindow(1);

}  // namespace

bool Restarts::Allow() {
  const auto now = Clock::now();
  deaths_.push_back(now);
  while (deaths_.front() < now - kWindow) deaths_.pop_front();
  if (deaths_.size() >= most_deaths_) return false;
  ++count_;
  return true;
}

}  // namespace envpack::front
