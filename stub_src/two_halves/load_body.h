// Loads the half of the stub that embeds Python.
#pragma once

#include "two_halves/body.h"

namespace envpack {

// Runs in a worker, in a template, or in a process that no server has started: loads libpython and the body,
// and does the task. Returns the exit status. If it cannot, a worker says so in its report.
int RunBody(const Task& task);

}  // namespace envpack
