// What a process notes about the region in memory that it shares with its parent, which is zero at first: the
// references to blocks that it holds, and the operation that it is in the middle of.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace envpack::shm {

using Handle = std::int64_t;

// One reference to a block, and its entry in a ledger.
struct Reference {
  Handle handle = 0;
  std::uint32_t entry = 0;
};

// What an operation on the region overwrites. If its process dies in its middle, the parent undoes it. The
// region's lock admits one operation at a time, so a dead process leaves at most one unfinished.
class UndoLog {
 public:
  // Writes back what an unfinished operation has overwritten, the last word first. `base`: where this process
  // has mapped the region, `size` bytes. Returns false and changes nothing if not all of it is known.
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

// One operation of this thread on the locked region, for a scope. What it overwrites counts only after
// Finish(): otherwise, as after an exception, the destructor undoes everything. Operations do not nest.
class Operation {
 public:
  // `log` may be null: then nothing is noted, and nothing undone.
  Operation(UndoLog* log, char* base, std::size_t size) noexcept;
  ~Operation();
  Operation(Operation&&) = delete;

  void Finish() noexcept;

  // Notes eight aligned bytes of the region, or of the ledger, before (a part of) them is overwritten.
  // Without an operation it does nothing.
  static void Save(const void* word) noexcept;

 private:
  UndoLog* const log_;
  char* const base_;
  const std::size_t size_;
};

// Every write to what the region's lock guards goes through this function.
template <typename Word>
void Overwrite(Word& word, Word value) noexcept {
  Operation::Save(&word);
  word = value;
}

// The references that a process holds. The child lists what it takes and strikes out what it gives back; the
// parent reads the list when the child is dead. The region's lock guards it, and what it notes is a part of
// the operation on the region (see Operation).
class Ledger {
 public:
  // The entry of a reference that is not listed because there is no room.
  static constexpr std::uint32_t kUnlisted = UINT32_MAX;
  // The entry of a reference that belongs to a process which the child has forked.
  static constexpr std::uint32_t kForeign = UINT32_MAX - 1;

  // Lists a reference to a block. Returns its entry.
  std::uint32_t Add(Handle handle) noexcept;

  // Strikes out the entry of a reference that is given back.
  void Remove(std::uint32_t entry) noexcept;

  // The blocks of all entries, one with several references several times. Nothing if it is damaged or
  // lacks references: to give back what is not held would free memory of the server.
  std::optional<std::vector<Handle>> Held() const;

  void Clear() noexcept;

  // The child's operation on the region.
  UndoLog& undo_log() { return undo_log_; }

 private:
  static constexpr std::uint32_t kEntries = 1 << 18;

  static Handle Sealed(Handle handle, std::uint32_t entry);

  alignas(8) UndoLog undo_log_;
  std::uint32_t used_;        // entries behind these have never been used
  std::uint32_t free_;        // 1 + the index of the first free entry below; 0 for none
  std::uint32_t unlisted_;    // references without an entry
  Handle entries_[kEntries];  // sealed; of a free entry: minus `free_` of the rest of the list
};
static_assert(sizeof(Ledger) == sizeof(UndoLog) + UndoLog::kNotes);

}  // namespace envpack::shm
