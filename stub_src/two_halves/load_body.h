// Loads the half of the stub that embeds Python.
#pragma once

#include "two_halves/body.h"

namespace envpack {

// Runs in a worker: loads libpython and the body, and does what the front asks. Returns the exit status. If
// it cannot, says so in the report.
int RunBody(const Assignment& assignment);

// Runs in a template, likewise.
int RunTemplate(const TemplateTask& task);

// Runs in a process that no server has started, likewise.
int RunLocal(const LocalTask& task);

}  // namespace envpack
