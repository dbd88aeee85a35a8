#include "shm/ledger.h"

#include "base/forks.h"

namespace envpack::shm {

namespace {

template <typename Value>
void Set(Value& note, Value value) noexcept {
  Operation::SaveNote(&note);
  note = value;
}

constexpr int kHandleBits = 47;  // of an address in a process

}  // namespace

// A handle with bits that tell it from bytes that happen to lie there.
Handle Ledger::Sealed(Handle handle, std::uint32_t entry) {
  const auto mixed = (static_cast<std::uint64_t>(handle) + entry + 1) * 0x9E3779B97F4A7C15;
  return handle | static_cast<Handle>(mixed >> (kHandleBits + 1) << kHandleBits);
}

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
  Set(entries_[entry], Sealed(handle, entry));
  return entry;
}

void Ledger::Remove(std::uint32_t entry) noexcept {
  if (entry == kForeign) return;
  if (entry == kUnlisted) return Set(unlisted_, unlisted_ - 1);
  Set(entries_[entry], -static_cast<Handle>(free_));
  Set(free_, entry + 1);
}

std::optional<std::vector<Handle>> Ledger::Held() const {
  const std::uint32_t used = used_;
  if (used > kEntries || unlisted_ != 0) return std::nullopt;
  std::vector<Handle> held;
  for (std::uint32_t i = 0; i < used; ++i) {
    const Handle noted = entries_[i];
    const Handle handle = noted & ((Handle{1} << kHandleBits) - 1);
    if (noted > 0 ? noted != Sealed(handle, i) : noted < -static_cast<Handle>(used)) return std::nullopt;
    if (noted > 0) held.push_back(handle);
  }
  return held;
}

void Ledger::Clear() noexcept {
  used_ = free_ = unlisted_ = 0;
  undo_log_.Clear();
}

}  // namespace envpack::shm
