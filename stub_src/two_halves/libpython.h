// Loads the libpython that this stub was compiled for.
#pragma once

#include <string>

namespace envpack {

// Loads libpython with its symbols visible to extension modules. Searches where the loader does
// (LD_LIBRARY_PATH begins with <environment>/lib), then beside the first python3 on PATH. Returns an empty
// string, or an error message.
std::string LoadLibpython();

}  // namespace envpack
