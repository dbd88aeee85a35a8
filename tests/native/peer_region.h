// The server's side of a shared-memory region, with the layout of a Triton 24.10 server and independent of
// stub_src/shm: Boost's managed buffer over the whole object, two named objects, counted blocks.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace envpack::test {

using Handle = std::int64_t;

class PeerRegion {
 public:
  // Creates the object and fills its free memory with garbage, like memory that has been used before. Its
  // name ends in a UUID, as for servers from 24.04 on, or in a number.
  explicit PeerRegion(std::size_t size = 1 << 20, bool has_uuid = true);
  // Removes the object's name.
  ~PeerRegion();
  PeerRegion(const PeerRegion&) = delete;
  PeerRegion& operator=(const PeerRegion&) = delete;

  const std::string& name() const { return name_; }

  // A counted block with one reference.
  Handle Create(std::size_t size);
  // Every block created so far, released or not.
  struct Made {
    Handle handle;
    std::size_t size;
  };
  const std::vector<Made>& made() const { return made_; }
  void AddReference(Handle handle);
  void Release(Handle handle);
  std::uint32_t References(Handle handle);

  // The bytes at `offset` in the block. Adds no reference.
  char* At(Handle handle, std::ptrdiff_t offset = 0);
  template <typename Record>
  Record* As(Handle handle, std::ptrdiff_t offset = 0) {
    return reinterpret_cast<Record*>(At(handle, offset));
  }

  // Guards the region. Every other function locks it, so unlock it before you call one.
  pthread_mutex_t* mutex();
  std::uint64_t FreeBytes();
  std::uint64_t Size();
  // Whether Boost's structures are consistent.
  bool IsConsistent();
  // Grows the region the way the server does.
  void Grow(std::size_t extra);
  // Removes the object's name.
  void Unlink();
  bool NameExists() const;

 private:
  struct State;

  std::string name_;
  std::vector<Made> made_;
  std::unique_ptr<State> state_;
};

}  // namespace envpack::test
