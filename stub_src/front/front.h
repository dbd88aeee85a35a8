// The process that the server starts. It contains no Python: workers, its children, run the model.
#pragma once

#include "abi/launch.h"
#include "abi/release.h"

namespace envpack::front {

// Serves one session with the server. Returns the exit status, or ends the process as its last worker ended.
int Run(const abi::Launch& launch, abi::Release release);

}  // namespace envpack::front
