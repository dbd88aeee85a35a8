// For a stub that cannot run its model: reports the reason through the server.
#pragma once

#include <string>

#include "abi/wire.h"

namespace envpack::channel {

// Answers the command last received with the error `reason`. Returns whether the session continues.
bool Refuse(abi::Session& server, const abi::Command& command, const std::string& reason);

// Answers every command with the error `reason`, until the server finalizes or kills this process. The server
// waits for a stub's first message and answer without a timeout, so exiting would hang the load of the model.
// The heartbeat must be running.
void RefuseEverything(abi::Session& server, const std::string& reason);

}  // namespace envpack::channel
