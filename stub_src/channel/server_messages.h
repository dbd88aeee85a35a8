// The thread that processes the messages that the server sends without a request.
#pragma once

#include <functional>
#include <memory>

#include "abi/wire.h"
#include "channel/streams.h"

namespace envpack::channel {

// Called by that thread. Must return quickly.
using ReadinessHandler = std::function<void(std::unique_ptr<abi::ReadinessProbe>)>;

// Starts the thread. Call it before a model is initialised. The server never ends these messages, so the
// thread runs until the process ends and is not joined. `wire` must live as long.
void ServeServerMessages(abi::Wire& wire, std::shared_ptr<Streams> streams, ReadinessHandler on_probe);

}  // namespace envpack::channel
