// The server's side of a queue.
#pragma once

#include <cstdint>
#include <optional>

#include "peer_region.h"
#include "peer_sync.h"

namespace envpack::test {

// Waits with a timeout, so that a silent stub fails the test instead of hanging it.
class PeerQueue {
 public:
  PeerQueue(PeerRegion& region, std::uint64_t slots);

  Handle handle() const { return record_; }
  void Push(std::int64_t value);
  std::int64_t Pop(int seconds = TimeoutSeconds());
  // Makes a value that was popped the next one again.
  void PutBack(std::int64_t value) { put_back_ = value; }
  // Nothing if no value arrives within the time.
  std::optional<std::int64_t> TryPop(int milliseconds);

 private:
  struct Record;
  Record* record();

  PeerRegion* region_;
  Handle record_;
  Handle slots_;
  std::optional<std::int64_t> put_back_;
};

}  // namespace envpack::test
