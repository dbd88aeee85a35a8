// The shared-memory region of one stub: an allocator that both processes use, and counted blocks in it.
//
// A mutex in the region guards every allocation, release, count and growth; see README.md, "The region".
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/forks.h"
#include "shm/heap.h"
#include "shm/ledger.h"
#include "shm/sync.h"

namespace envpack::shm {

// Handle is a block's offset from the start of the region, which each process maps at another address.

// Of mutexes, and of records that both sides wait in.
inline constexpr std::size_t kRecordAlignment = 32;

// A handle or offset points outside the region: the server is of another release, or the region is damaged.
struct CorruptRegion : std::runtime_error {
  using runtime_error::runtime_error;
};

// The region cannot grow, typically because /dev/shm is full.
struct RegionFull : std::runtime_error {
  using runtime_error::runtime_error;
};

class Region;

// One reference to a counted block. Whichever process drops the last reference frees the block.
class Block {
 public:
  Block() = default;

  Handle handle() const { return region_.get_deleter().reference.handle; }
  explicit operator bool() const { return region_ != nullptr; }

  // The bytes after the reference count. Throws CorruptRegion if `offset + length` lies outside the region.
  char* At(std::size_t offset, std::size_t length) const;

  template <typename Record>
  Record* As(std::size_t offset = 0) const {
    return reinterpret_cast<Record*>(At(offset, sizeof(Record)));
  }

  // A value at an offset that need not be aligned.
  template <typename Value>
  Value Read(std::size_t offset) const {
    Value value;
    std::memcpy(&value, At(offset, sizeof(value)), sizeof(value));
    return value;
  }
  template <typename Value>
  void Write(std::size_t offset, const Value& value) const {
    std::memcpy(At(offset, sizeof(value)), &value, sizeof(value));
  }

 private:
  friend class Region;
  struct Drop {
    void operator()(Region* region) const noexcept;

    Reference reference;
    forks::OwnerProcess owner_process;  // a forked process has a copy of the Block but no reference
  };
  Block(Region* region, Reference reference, char* data, std::size_t limit)
      : region_(region, Drop{reference, {}}), data_(data), limit_(limit) {}

  std::unique_ptr<Region, Drop> region_;
  char* data_ = nullptr;
  std::size_t limit_ = 0;
};

// Limits how many bytes this thread reads for one message. The blocks of a message do not overlap, so a valid
// one is not larger than the region. While a ReadBudget lives, reading a multiple of that throws
// CorruptRegion: a hostile message could refer to the same bytes over and over. The inner budget applies.
class ReadBudget {
 public:
  explicit ReadBudget(Region& region);
  ~ReadBudget();
  ReadBudget(ReadBudget&&) = delete;

 private:
  std::size_t left_;
  std::size_t* outer_;
};

// Locks the region for several operations of this thread, each of which would otherwise lock it separately
// and contend with the server. Do not wait for anything else meanwhile, least of all for the GIL. Locks nest.
class RegionLock {
 public:
  explicit RegionLock(Region& region);
  ~RegionLock();

 private:
  friend class ReleaseTogether;
  friend class RegionPause;

  const forks::Undisturbed undisturbed_;
  Region& region_;
  RegionLock* outer_;
  std::optional<BriefLock> lock_;
};

// Unlocks, for a scope, the region that this thread holds: for what takes time or waits.
class RegionPause {
 public:
  RegionPause();
  ~RegionPause();
  RegionPause(RegionPause&&) = delete;

 private:
  RegionLock* paused_;
  RegionLock* owner_ = nullptr;
};

// Collects the blocks that this thread drops, and releases them with one lock: at the end of the outermost
// scope, or when this thread locks the region before that. Not a lock: the thread may wait meanwhile.
class ReleaseTogether {
 public:
  ReleaseTogether();
  ~ReleaseTogether();
  ReleaseTogether(ReleaseTogether&&) = delete;

 private:
  friend class Block;
  friend class RegionLock;

  bool Add(Region& region, Reference reference) noexcept;
  void Flush() noexcept;

  Region* region_ = nullptr;
  std::vector<Reference> references_;
  forks::OwnerProcess owner_process_;  // a forked process releases nothing
};

class Region {
 public:
  // Attaches to the region of the server, which grows in steps of `growth` bytes. Notes references and
  // operations in `ledger`, which must live as long; null if no process watches this one.
  Region(const std::string& name, std::size_t growth, Ledger* ledger = nullptr);
  ~Region();

  // Creates a block of `size` bytes with one reference. The bytes are not initialised: write every field that
  // the server reads. Grows the region if necessary; throws RegionFull if it cannot grow.
  Block Create(std::size_t size, std::size_t alignment = Heap::kAlignment);

  // Adds a reference to a block that the server has created. Throws CorruptRegion for an invalid handle.
  Block Load(Handle handle);

  // Mapped bytes.
  std::size_t Size();

  // Bytes that are free without growing.
  std::uint64_t FreeBytes();

  // Removes the region's name; see Mapping::Unlink.
  void Unlink() noexcept;

  // Processes that note their operations in `log` use the region, too. If one dies in the middle of an
  // operation, the next lock here undoes that. Otherwise `log` is that of the own ledger.
  void Watch(UndoLog& log) {
    watched_ = &log;
    watches_another_ = true;
  }
  // Locks and unlocks the region. Throws CorruptRegion if it stays locked, or if what a dead process has left
  // cannot be undone. The other one, for after a death, also if the process has overwritten the allocator.
  void CheckLock();
  void CheckAll();
  // The references to a block, and giving back references that the dead process held.
  std::uint32_t References(Handle handle);
  void ReleaseFor(const std::vector<Handle>& held) noexcept;

 private:
  friend class Block;
  friend class RegionLock;
  friend class RegionPause;
  friend class ReleaseTogether;
  struct Memory;

  std::optional<Reference> Allocate(std::size_t size, std::size_t alignment);
  void Release(Reference reference) noexcept;
  void HoldLock(std::optional<BriefLock>& lock);
  void HoldWithin(std::chrono::milliseconds limit, std::optional<BriefLock>& lock);
  bool IsBlock(Handle handle) const;
  void UndoUnfinished();
  Operation Begin();
  std::uint32_t List(Handle handle) noexcept;
  void Drop(Handle handle);
  void Follow();
  void MapAgain();
  void Grow(std::size_t need);
  RegionFull Full(std::size_t size, const std::string& reason) const;

  std::unique_ptr<Memory> memory_;
  std::size_t growth_;
  Ledger* ledger_;
  UndoLog* watched_;  // null if no log is known
  bool watches_another_ = false;
  bool stays_locked_ = false;  // so that one wait is enough
};

// memcpy for sizes that may be 0, for which the addresses may be null and must not reach memcpy.
inline void CopyBytes(void* to, const void* from, std::size_t size) {
  if (size != 0) std::memcpy(to, from, size);
}

}  // namespace envpack::shm
