// Reads of the file system. The C++ library's streams and folders would double the size of the stub.
#pragma once

#include <string>
#include <vector>

namespace envpack {

// The content of a file, at most `most` bytes; empty if it cannot be read.
std::string ReadFile(const std::string& path, std::size_t most);

// The names in a folder, in no order; empty if it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder);

// Where a symbolic link leads; empty if it is none.
std::string LinkTarget(const std::string& path);

}  // namespace envpack
