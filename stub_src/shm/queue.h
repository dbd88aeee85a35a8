// A bounded queue of 64-bit values between the two processes.
#pragma once

#include <cstdint>

#include "shm/region.h"

namespace envpack::shm {

// Handles travel through the queues. Value 0 is never a handle: it acknowledges, wakes up or ends, as agreed
// at each place.
class Queue {
 public:
  // Attaches to a queue that the server has made.
  Queue(Region& region, Handle handle);

  // Both block while the queue is full or empty, and must not be called with the GIL held.
  void Push(std::int64_t value);
  std::int64_t Pop();

 private:
  Block record_;
  Block slots_;
  std::uint64_t size_;  // as it was at first: the region's own copy might change
};

}  // namespace envpack::shm
