// Reads of files, folders and variables. The C++ library's streams and folders would double the stub's size.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace envpack {

// An environment variable; nothing if it is not set, or empty.
std::optional<std::string> Variable(const char* name);

// The content of a file, at most `most` bytes; empty if it cannot be read.
std::string ReadFile(const std::string& path, std::size_t most);

// The names in a folder, in no order; empty if it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder);

// Where a symbolic link leads; empty if it is none.
std::string LinkTarget(const std::string& path);

// The first folder on PATH that has a file `name` for which access() grants `mode`; empty if there is none.
std::string FolderOnPath(const std::string& name, int mode);

inline bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Takes the first part of a text, up to a separator or its end.
inline std::string_view TakePart(std::string_view& rest, char separator) {
  const std::string_view part = rest.substr(0, rest.find(separator));
  rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  return part;
}

}  // namespace envpack
