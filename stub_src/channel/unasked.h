// The thread that serves what the server sends on its own initiative.
#pragma once

#include <thread>

#include "abi/wire.h"

namespace envpack::channel {

// Must run before a model is initialised. The server never ends this conversation, so the thread lives as
// long as the process and is not joined.
class UnaskedMessages {
 public:
  explicit UnaskedMessages(abi::Wire& wire);
};

}  // namespace envpack::channel
