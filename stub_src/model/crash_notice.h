// One line on standard error in front of Python's traceback of a crash.
#pragma once

#include <string>

namespace envpack::model {

// Has a crash say in which model instance it happened, since a server's log has the output of all of them.
// Only where Python's faulthandler is on, which must be in place already.
void NameInCrashes(const std::string& instance);

}  // namespace envpack::model
