// Where the embedded Python has its standard library.
#pragma once

#include <optional>
#include <string>

namespace envpack::model {

// What Python otherwise derives from the first executable `python3` on PATH.
struct Home {
  std::string prefix;      // of the environment: it contains lib/python<minor>
  std::string executable;  // sys.executable; the file need not be executable
};

// The home of the libpython that is loaded, so that an environment also works without executable files, as
// object storage delivers it. Empty if its standard library is elsewhere, if PYTHONHOME is set, or for a
// virtual environment, whose libpython is that of another prefix: Python then searches by itself.
std::optional<Home> FindHome();

}  // namespace envpack::model
