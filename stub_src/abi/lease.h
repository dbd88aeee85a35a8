// A device buffer of the server, which may have it back when the last user of its bytes has gone.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "forks.h"
#include "shm/queue.h"

namespace envpack::abi {

class Lease {
 public:
  // `released` is the queue by which the server learns that the buffer called `release_id` is free; 0 is
  // none.
  Lease(std::shared_ptr<void> memory, std::uint64_t release_id, shm::Queue& released)
      : memory_(std::move(memory)), release_id_(release_id), released_(released) {}
  ~Lease() {
    memory_.reset();
    if (release_id_ == 0 || !maker_.IsThisProcess()) return;
    try {
      released_.Push(static_cast<std::int64_t>(release_id_));
    } catch (const std::exception&) {
      // The region is beyond repair, and the server takes all buffers back when this process ends.
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  std::shared_ptr<void> memory_;
  std::uint64_t release_id_;
  shm::Queue& released_;
  forks::Maker maker_;
};

}  // namespace envpack::abi
