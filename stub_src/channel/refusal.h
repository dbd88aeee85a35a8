// For a stub that cannot run its model: reports the reason through the server.
#pragma once

#include <string>

#include "abi/launch.h"
#include "abi/release.h"
#include "abi/wire.h"

namespace envpack::channel {

// Answers the command last received with the error `reason`. Returns whether the session continues.
bool Refuse(abi::Session& server, const abi::Command& command, const std::string& reason);

// Answers every command with the error `reason`, until the server finalizes or kills this process. The server
// waits for a stub's first message and answer without a timeout, so exiting would hang the load of the model.
// The heartbeat should be running.
void RefuseEverything(abi::Session& server, const std::string& reason);

// For a stub that cannot start: prints the reason and answers every command with it. Returns the exit status.
int RefuseLaunch(const abi::Launch& launch, abi::Release release, const std::string& reason);

// The same after the startup message.
int RefuseStart(abi::Session& server, const std::string& reason);

// The load error of a stub that cannot start, and the error of requests that an instance cannot process. Both
// begin with the words that people look for, since the stubs that belong to the releases use them.
std::string StartFailure(const std::string& reason);
std::string RequestFailure(const std::string& instance, const std::string& reason);

}  // namespace envpack::channel
