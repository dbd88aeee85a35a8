// Detects processes that the model forks: they inherit copies of the stub's objects but own none of them.
#pragma once

namespace envpack::forks {

// Counts forks from now on, and restores the default action of SIGINT and SIGTERM in forked processes unless
// the model has installed its own handlers. Call it once, after this process has installed its handlers.
void Watch();

// How many forks lie between the process that called Watch() and this one.
int Depth();

// Records which process created an object. Only that process gives back what the object holds in the region
// or in the server.
class OwnerProcess {
 public:
  bool IsThisProcess() const { return depth_ == Depth(); }

 private:
  int depth_ = Depth();
};

}  // namespace envpack::forks
