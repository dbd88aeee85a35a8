// The command line that the server gives to a stub.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace envpack::abi {

// The server starts the stub once without any argument and only goes on in peace if that exits with this
// status; after any other it sets the file's mode to 0100.
inline constexpr int kDryRunStatus = 1;

struct Launch {
  std::string model_file;         // <model directory>/<version>/model.py
  std::string region;             // name of the shared-memory object
  std::size_t region_growth;      // bytes
  std::int64_t server_pid;        // our parent for as long as the server lives
  std::string backend_directory;  // holds triton_python_backend_utils.py
  std::int64_t control_handle;
  std::string name;               // of the model instance; of the model when only asked to auto-complete
  std::string runtime_directory;  // "DEFAULT", or the folder whose model.py is meant
  bool has_last_argument = true;  // the server gave what `runtime_directory` comes from
};

// Throws std::invalid_argument, with a text that names the argument, if the command line is not a server's.
Launch ParseLaunch(int argc, const char* const* argv);

}  // namespace envpack::abi
