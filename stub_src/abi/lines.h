// Reading small text files. Without streams: with all of their locales they would be a third of the
// executable.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

namespace envpack::abi {

// Calls `look` with each line of a file, without its end, until that returns false. No file is no lines.
inline void ForEachLine(const std::string& path, const std::function<bool(const std::string&)>& look) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  if (!file) return;
  std::string line;
  for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get())) {
    if (c != '\n') {
      line.push_back(static_cast<char>(c));
    } else if (look(line)) {
      line.clear();
    } else {
      return;
    }
  }
  if (!line.empty()) look(line);
}

}  // namespace envpack::abi
