// Processes that the model forks: they carry copies of everything of ours, and own none of it.
#pragma once

namespace envpack::forks {

// From now on a forked process is ended by SIGINT and SIGTERM again, unless the model has handlers of its
// own; and Depth() tells it from this one. Call it once, when this process's own handlers are in place.
void Watch();

// How many forks lie between the process that called Watch() and this one.
int Depth();

// Remembers in which process it was made. What such an object holds in the region or in the server is given
// back by that process only.
class Maker {
 public:
  bool IsThisProcess() const { return depth_ == Depth(); }

 private:
  int depth_ = Depth();
};

}  // namespace envpack::forks
