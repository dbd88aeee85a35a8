// An exchange in the middle of which a worker has died.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "abi/journal.h"
#include "front/recovery/deputy.h"
#include "shm/region.h"

namespace envpack::front {

// The message has been sent. The server's thread waits for the worker, or will when it has processed it.
class Pending {
 public:
  // `notes` are those of the worker, `journal` is for the next one; `held` are the blocks that the worker
  // held.
  Pending(Deputy& deputy, abi::Journal& notes, abi::Journal& journal, const abi::Exchange& exchange,
          const std::vector<abi::Handle>& held);

  // Does what the worker would have done next, without waiting for the server. Returns whether the exchange
  // has ended. Throws shm::Abandoned.
  bool Advance();

  // Whether it may take as long as a request to another model.
  bool IsInference() const { return kind_ == abi::Exchange::kInference || kind_ == abi::Exchange::kStream; }

 private:
  bool AdvanceTurn();
  bool AdvanceReport();
  bool AdvanceInference();
  void TakeFirstResponse();
  bool IsReleased();

  Deputy* deputy_;
  abi::Journal* notes_;
  abi::Journal* journal_;
  abi::Exchange::Kind kind_;
  bool was_read_;
  std::int64_t final_of_;
  std::uint64_t waits_;  // of the worker
  shm::Block message_;
  shm::Block record_;
  shm::Block mutex_;
  shm::Block condition_;
  std::uint32_t own_references_;  // to the block that the server gives back last
  bool is_answered_ = false;      // the server's thread has been released
};

}  // namespace envpack::front
