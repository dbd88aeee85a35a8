#include "shm/ledger.h"

#include "base/forks.h"

namespace envpack::shm {

namespace {

template <typename Value>
void Set(Value& note, Value value) noexcept {
  Operation::SaveNote(&note);
  note = value;
}

}  // namespace

std::uint32_t Ledger::Add(Handle handle) noexcept {
  if (forks::Depth() > 0) return kForeign;
  std::uint32_t entry;
  if (free_ != 0) {
    entry = free_ - 1;
    Set(free_, static_cast<std::uint32_t>(-entries_[entry]));
  } else if (used_ < kEntries) {
    entry = used_;
    Set(used_, used_ + 1);
  } else {
    Set(unlisted_, unlisted_ + 1);
    return kUnlisted;
  }
  Set(entries_[entry], handle);
  return entry;
}

void Ledger::Remove(std::uint32_t entry) noexcept {
  if (entry == kForeign) return;
  if (entry == kUnlisted) return Set(unlisted_, unlisted_ - 1);
  Set(entries_[entry], -static_cast<Handle>(free_));
  Set(free_, entry + 1);
}

std::vector<Handle> Ledger::Held() const {
  std::vector<Handle> held;
  for (std::uint32_t i = 0; i < used_; ++i) {
    if (entries_[i] > 0) held.push_back(entries_[i]);
  }
  return held;
}

void Ledger::Clear() noexcept { used_ = free_ = unlisted_ = 0; }

}  // namespace envpack::shm
