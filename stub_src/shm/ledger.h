// The references to blocks that a process holds, listed where its parent can read them: what a process that
// dies has not given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "shm/undo_log.h"

namespace envpack::shm {

using Handle = std::int64_t;

// One reference to a block, and its entry in a ledger.
struct Reference {
  Handle handle;
  std::uint32_t entry;
};

// Lies in memory that parent and child share, which is zero at first. The child lists what it takes and
// strikes out what it gives back; the parent reads the list when the child is dead. The region's lock guards
// it, and what it notes is a part of the operation on the region (see Operation).
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
