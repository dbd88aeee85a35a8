#include "shm/ledger.h"

#include <algorithm>
#include <cstring>

#include "base/forks.h"

namespace envpack::shm {

namespace {

constexpr std::uintptr_t kWord = sizeof(std::uint64_t);

std::int64_t Distance(const void* from, const void* to) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) / kWord * kWord -
                                   reinterpret_cast<std::uintptr_t>(from));
}

thread_local Operation* current = nullptr;

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
    Overwrite(free_, static_cast<std::uint32_t>(-entries_[entry]));
  } else if (used_ < kEntries) {
    entry = used_;
    Overwrite(used_, used_ + 1);
  } else {
    Overwrite(unlisted_, unlisted_ + 1);
    return kUnlisted;
  }
  Overwrite(entries_[entry], Sealed(handle, entry));
  return entry;
}

void Ledger::Remove(std::uint32_t entry) noexcept {
  if (entry == kForeign) return;
  if (entry == kUnlisted) return Overwrite(unlisted_, unlisted_ - 1);
  Overwrite(entries_[entry], -static_cast<Handle>(free_));
  Overwrite(free_, entry + 1);
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

// The parent reads when this process is dead, so only the order of the instructions matters.
void UndoLog::Save(std::int64_t distance, const void* word) noexcept {
  const std::uint32_t at = used_.load(std::memory_order_relaxed);
  if (at < kEntries) {
    entries_[at].distance = distance;
    std::memcpy(&entries_[at].before, word, kWord);
  }
  if (at <= kEntries) used_.store(at + 1, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Null if the word is not where it can be: in the region, or in the ledger behind this log.
char* UndoLog::Find(std::int64_t distance, char* base, std::size_t size) noexcept {
  const bool is_note = (distance & kFromLog) != 0;
  const auto at = static_cast<std::size_t>(distance - (is_note ? kFromLog : 0));
  const std::size_t begin = is_note ? sizeof(UndoLog) : 0, end = is_note ? begin + kNotes : size;
  if (at % kWord != 0 || at < begin || at > end - kWord) return nullptr;
  return (is_note ? reinterpret_cast<char*>(this) : base) + at;
}

bool UndoLog::Undo(char* base, std::size_t size) noexcept {
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  if (used > kEntries) return false;
  Entry entries[kEntries];  // a process that the dead one has left behind cannot change these
  std::copy(entries_, entries_ + used, entries);
  char* words[kEntries];
  for (std::uint32_t i = 0; i < used; ++i) {
    words[i] = Find(entries[i].distance, base, size);
    if (words[i] == nullptr) return false;
  }
  for (std::uint32_t i = used; i > 0; --i) std::memcpy(words[i - 1], &entries[i - 1].before, kWord);
  used_.store(0, std::memory_order_release);
  return true;
}

Operation::Operation(UndoLog* log, char* base, std::size_t size) noexcept
    : log_(log), base_(base), size_(size) {
  if (log_ != nullptr) current = this;
}

Operation::~Operation() {
  if (current != this) return;
  current = nullptr;
  log_->Undo(base_, size_);
}

void Operation::Finish() noexcept {
  if (current != this) return;
  current = nullptr;
  log_->used_.store(0, std::memory_order_release);
}

void Operation::Save(const void* word) noexcept {
  if (current == nullptr) return;
  UndoLog* log = current->log_;
  const auto behind_log = reinterpret_cast<std::uintptr_t>(word) - reinterpret_cast<std::uintptr_t>(log);
  const bool is_note = behind_log < sizeof(*log) + UndoLog::kNotes;
  char* const from = is_note ? reinterpret_cast<char*>(log) : current->base_;
  const std::int64_t distance = Distance(from, word);
  log->Save(is_note ? distance | UndoLog::kFromLog : distance, from + distance);
}

}  // namespace envpack::shm
