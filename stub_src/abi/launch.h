// The command line that the server gives to a stub.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace envpack::abi {

// The server first runs the stub without arguments. If the exit status differs from this one, it sets the
// mode of the file to 0100.
inline constexpr int kDryRunStatus = 1;

struct Launch {
  std::string model_file;         // <model directory>/<version>/model.py
  std::string region;             // name of the shared-memory object
  std::size_t region_growth;      // bytes
  std::int64_t server_pid;        // the parent process as long as the server lives
  std::string backend_directory;  // holds triton_python_backend_utils.py
  std::int64_t control_handle;
  std::string name;               // of the model instance; of the model for auto-complete
  std::string runtime_directory;  // "DEFAULT", or a folder that may have its own model.py
  bool has_last_argument = true;  // the argument that `runtime_directory` comes from
};

// Throws std::invalid_argument, with a message that names the argument, for an invalid command line.
Launch ParseLaunch(int argc, const char* const* argv);

}  // namespace envpack::abi
