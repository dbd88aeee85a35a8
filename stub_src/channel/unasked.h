// The thread that serves what the server sends on its own initiative.
#pragma once

#include <memory>

#include "abi/wire.h"
#include "channel/streams.h"

namespace envpack::channel {

// Starts it; must have happened before a model is initialised. The server never ends this conversation, so
// the thread lives as long as the process and is not joined. `wire` must live as long.
void ServeUnaskedMessages(abi::Wire& wire, std::shared_ptr<Streams> streams);

}  // namespace envpack::channel
