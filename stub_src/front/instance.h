// One model instance: its worker, and the workers that replace it.
#pragma once

#include <string>

#include "abi/values.h"
#include "channel/heartbeat.h"
#include "channel/report.h"
#include "front/recovery/deputy.h"
#include "two_halves/body.h"

namespace envpack::front {

// Why a worker has not come to serve requests: what it has reported, or else that it ended, which `end` says.
abi::Failure FailureOf(const channel::Report& report, const std::string& end);

// Runs an instance until the server finalizes it. `assignment` has the server's command to initialize.
// Returns the exit status, or ends the process as the last worker ended.
int RunInstance(Deputy& deputy, channel::Heartbeat& heartbeat, Assignment assignment);

}  // namespace envpack::front
