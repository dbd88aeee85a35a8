// What an operation on the region overwrites. If its process dies in its middle, the parent undoes it. The
// region's lock admits one operation at a time, so a dead process leaves at most one unfinished.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace envpack::shm {

// Lies in memory that parent and child share, which is zero at first.
class UndoLog {
 public:
  // Writes back what an unfinished operation has overwritten, the last word first. `base` is where this
  // process has mapped the region, with `size` bytes. Returns false, and changes nothing, if not all of it is
  // known.
  bool Undo(char* base, std::size_t size) noexcept;

  void Clear() noexcept { used_ = 0; }

  // Bytes behind the log that operations overwrite, too: the ledger's notes.
  static constexpr std::size_t kNotes = 16 + (sizeof(std::int64_t) << 18);

 private:
  friend class Operation;

  // Aligned words of eight bytes. The lowest bit says from where the distance counts.
  struct Entry {
    std::int64_t distance;
    std::uint64_t before;
  };
  static constexpr std::int64_t kFromLog = 1;  // from this log, otherwise from the start of the region
  static constexpr std::uint32_t kEntries = 512;

  void Save(std::int64_t distance, const void* word) noexcept;
  char* Find(std::int64_t distance, char* base, std::size_t size) noexcept;

  std::atomic<std::uint32_t> used_;  // larger than kEntries if there was no room
  Entry entries_[kEntries];
};

// One operation of this thread on the region, for a scope. The region must be locked. What it overwrites
// counts only after Finish(): without it the destructor undoes everything, as after an exception. Operations
// do not nest.
class Operation {
 public:
  // `log` may be null: then nothing is noted, and nothing undone.
  Operation(UndoLog* log, char* base, std::size_t size) noexcept;
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void Finish() noexcept;

  // Call these before you overwrite (a part of) eight aligned bytes of the region, or of what is shared with
  // the parent. Without an operation they do nothing.
  static void Save(const void* word) noexcept;
  static void SaveNote(const void* word) noexcept;

 private:
  UndoLog* const log_;
  char* const base_;
  const std::size_t size_;
};

}  // namespace envpack::shm
