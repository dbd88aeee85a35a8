// What the code of the server's library says about its version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace envpack::abi {

struct LibraryVersion {
  std::string file;
  std::string version;  // "2.51", without the last part
};

// Looks into the library that the process `server_pid` runs. None if it cannot be found, read or made sense
// of.
std::optional<LibraryVersion> ReadServerLibrary(std::int64_t server_pid);

}  // namespace envpack::abi
