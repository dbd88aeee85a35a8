// The allocator of the region: a best-fit tree in the layout of Boost.Interprocess, which the server uses.
// Everything that it overwrites is noted in the region's undo log first, which Boost's own cannot do.
#pragma once

#include <cstddef>
#include <cstdint>

namespace envpack::shm {

// A view of an allocator that the server has created. The region must be locked.
class Heap {
 public:
  // Addresses are multiples of this.
  static constexpr std::size_t kAlignment = 16;

  // `base` is where the region starts.
  explicit Heap(char* base) : base_(base) {}

  // Null if there is no room. `alignment` is a power of two, kAlignment or more.
  void* Allocate(std::size_t size, std::size_t alignment = kAlignment);
  void Free(void* address);

  // The region has grown by `extra` bytes.
  void Grow(std::size_t extra);

  // Whether chunks and tree are as operations leave them, in a region of `size` bytes. Otherwise a process
  // has overwritten them, and every other function may crash.
  bool IsSound(std::size_t size) const;
  // Whether something at `address` has been allocated, as far as the chunks next to it say.
  bool IsAllocated(const char* address, std::size_t size) const;

 private:
  struct Header;
  struct Chunk;
  class Inspection;

  Header& header() const;
  Chunk* Take(std::uint64_t units);
  static Chunk* Split(Chunk* chunk, std::uint64_t units);
  void Insert(Chunk* chunk);
  void Remove(Chunk* chunk);

  char* base_;
};

}  // namespace envpack::shm
