// Whether the import of a model has left something that a fork would break.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace envpack::model {

// What the model has left too little of for a worker, in words: descriptors, memory or threads.
std::optional<std::string> FindShortage();

// Notes what the process has open when it is created.
class ForkSafety {
 public:
  ForkSafety();

  // What has come since then that a fork shares, loses or damages, in words; nothing if a fork is safe. Forks
  // a process that ends at once, to find handlers of forks that do not return, and threads that these
  // handlers do not end. Needs the GIL.
  std::optional<std::string> FindObstacle() const;

 private:
  std::set<int> open_before_;
};

}  // namespace envpack::model
