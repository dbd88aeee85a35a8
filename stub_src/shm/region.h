// The shared region of one stub: an allocator that both processes use, and counted blocks in it.
//
// The allocator is Boost.Interprocess's best-fit tree without a lock of its own. One mutex that lies in the
// region itself guards every allocation, release, count and growth; see README.md, "The region".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "forks.h"
#include "shm/sync.h"

namespace envpack::shm {

// Byte offset of a block from the start of the region: the only kind of pointer that both processes
// understand.
using Handle = std::int64_t;

// A handle or an offset points outside of the region, so the peer (or its release) is not the one we think it
// is.
class CorruptRegion : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The region cannot grow, typically because /dev/shm is full.
class RegionFull : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Region;

// One reference to a counted block. The side that drops the last reference frees the block, whoever made it.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block();

  Handle handle() const { return handle_; }
  explicit operator bool() const { return region_ != nullptr; }

  // The bytes behind the count. At() checks that `offset + length` stays inside of the region.
  char* At(std::size_t offset, std::size_t length) const;

  template <typename Record>
  Record* As(std::size_t offset = 0) const {
    return reinterpret_cast<Record*>(At(offset, sizeof(Record)));
  }

 private:
  friend class Region;
  void Drop() noexcept;
  Block(Region* region, Handle handle, char* data, std::size_t limit)
      : region_(region), handle_(handle), data_(data), limit_(limit) {}

  Region* region_ = nullptr;
  Handle handle_ = 0;
  char* data_ = nullptr;
  std::size_t limit_ = 0;
  forks::Maker maker_;  // a forked process has a copy of the block, but no reference of its own
};

// The reading of one message, by this thread. Blocks of a message do not overlap, so it cannot be larger than
// the region. While a Reading lives, looking at much more than that throws CorruptRegion: a hostile message
// could have us copy the same bytes without end. Readings nest; the inner one counts.
class Reading {
 public:
  explicit Reading(Region& region);
  ~Reading();
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  std::size_t left_;
  std::size_t* outer_;
};

// Holds the region's lock over several operations of this thread, which would otherwise each take and leave
// it: after an answer the server works in the region at the same time, and every turn taken is a chance to
// wait for it. Nothing else may be waited for meanwhile, the GIL least of all. Holds nest.
class Hold {
 public:
  explicit Hold(Region& region);
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  const Region* outer_;
  std::optional<Lock> lock_;
};

class Region {
 public:
  // Attaches to the region that the server has made. `growth` is the step in bytes by which it grows.
  Region(const std::string& name, std::size_t growth);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Makes a block of `size` bytes with one reference. The bytes are not initialised: write every field that
  // anybody reads. Grows the region if need be; throws RegionFull if that fails.
  Block Create(std::size_t size);

  // The same for records that the server's own helper aligns to 32 bytes.
  Block CreateAligned(std::size_t size);

  // Takes a reference to a block that the peer has made. Throws CorruptRegion for a handle that cannot be
  // one.
  Block Load(Handle handle);

  // Bytes that this process has mapped.
  std::size_t Size();

  // Bytes that are free right now, without growing.
  std::uint64_t FreeBytes();

  // Removes the region's name; see Mapping::Unlink.
  void Unlink() noexcept;

 private:
  friend class Block;
  friend class Hold;
  struct Allocator;

  Block CreateWith(std::size_t size, std::size_t alignment);
  void Release(Handle handle) noexcept;
  void Follow();
  void Grow(std::size_t need);

  std::unique_ptr<Allocator> allocator_;
  std::size_t growth_;
};

}  // namespace envpack::shm
