// The process that the server starts. It contains no Python: workers, its children, run the model.
#pragma once

#include <functional>

#include "abi/launch.h"
#include "abi/release.h"
#include "two_halves/body.h"

namespace envpack::front {

// Runs in a worker. Returns its exit status.
using Work = std::function<int(const Assignment&)>;

// Serves one session with the server. Returns the exit status, or ends the process as its last worker ended.
int Run(const abi::Launch& launch, abi::Release release, const Work& work);

}  // namespace envpack::front
