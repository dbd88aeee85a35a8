// What a stub does that cannot run a model: it says why, through the server.
#pragma once

#include <string>

#include "abi/wire.h"

namespace envpack::channel {

// Answers the command last received with `reason` as its error; true if the conversation goes on.
bool Refuse(abi::Attendance& server, const abi::Command& command, const std::string& reason);

// Answers every command with `reason` as its error, until the server finalizes or kills this process. The
// server waits for a stub's first message and answer without a limit, so just exiting would hang the load of
// the model for ever. The heartbeat must be running already.
void RefuseEverything(abi::Attendance& server, const std::string& reason);

}  // namespace envpack::channel
