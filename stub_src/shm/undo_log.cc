#include "shm/undo_log.h"

#include <algorithm>
#include <cstring>

namespace envpack::shm {

namespace {

constexpr std::uintptr_t kWord = sizeof(std::uint64_t);

std::int64_t Distance(const void* from, const void* to) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) / kWord * kWord -
                                   reinterpret_cast<std::uintptr_t>(from));
}

thread_local Operation* current = nullptr;

}  // namespace

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
  const std::int64_t distance = Distance(current->base_, word);
  current->log_->Save(distance, current->base_ + distance);
}

void Operation::SaveNote(const void* word) noexcept {
  if (current == nullptr) return;
  UndoLog* log = current->log_;
  const std::int64_t distance = Distance(log, word);
  log->Save(distance | UndoLog::kFromLog, reinterpret_cast<char*>(log) + distance);
}

}  // namespace envpack::shm
