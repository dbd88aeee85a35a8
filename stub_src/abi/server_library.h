// Reads the version of a running server from its code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace envpack::abi {

struct LibraryVersion {
  std::string file;
  std::string version;  // "2.51", without the last part
};

// The version of the library that the process `server_pid` runs, if it can be determined.
std::optional<LibraryVersion> ReadServerLibrary(std::int64_t server_pid);

}  // namespace envpack::abi
