// One of the queues between server and stub, as the server sees it.
#pragma once

#include <cstdint>
#include <optional>

#include "peer_region.h"
#include "peer_sync.h"

namespace envpack::test {

// A queue as the server sees it. Waits at most some seconds, so a silent stub fails a test instead of hanging
// it.
class PeerQueue {
 public:
  PeerQueue(PeerRegion& region, std::uint64_t slots);

  Handle handle() const { return record_; }
  void Push(std::int64_t value);
  std::int64_t Pop(int seconds = kPatienceSeconds);
  // Nothing if none comes within the time.
  std::optional<std::int64_t> TryPop(int milliseconds);

 private:
  struct Record;
  Record* record();

  PeerRegion* region_;
  Handle record_;
  Handle slots_;
};

}  // namespace envpack::test
