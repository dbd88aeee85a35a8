// The thread that serves what the server sends on its own initiative.
#pragma once

#include <functional>
#include <memory>

#include "abi/wire.h"
#include "channel/streams.h"

namespace envpack::channel {

// Called by that thread, and must not take long.
using TakeReadinessQuestion = std::function<void(std::unique_ptr<abi::ReadinessQuestion>)>;

// Starts it; must have happened before a model is initialised. The server never ends this conversation, so
// the thread lives as long as the process and is not joined. `wire` must live as long.
void ServeUnaskedMessages(abi::Wire& wire, std::shared_ptr<Streams> streams, TakeReadinessQuestion take);

}  // namespace envpack::channel
