// Finding the one libpython that this stub was compiled for.
#pragma once

#include <string>

namespace envpack {

// Loads libpython with its symbols visible to the extension modules that need them. Looks where the loader
// looks (LD_LIBRARY_PATH has <environment>/lib in front), then beside the first python3 on PATH. Returns an
// empty text, or what is wrong.
std::string LoadLibpython();

}  // namespace envpack
