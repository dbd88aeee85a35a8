// Detects processes that the model forks: they inherit copies of the stub's objects but own none of them.
#pragma once

#include <signal.h>
#include <sys/types.h>

namespace envpack::forks {

// Counts forks from now on. In forked processes SIGINT and SIGTERM end the process again, unless the model
// has installed its own handlers. Call it once, after this process has installed its handlers.
void Watch();

// Forks a process that takes the place of this one: it counts as the process that called Watch().
pid_t ForkSuccessor();

// How many forks lie between the process that called Watch() and this one.
int Depth();

// Records which process created an object. Only that one gives back what it holds in region and server.
class OwnerProcess {
 public:
  bool IsThisProcess() const { return depth_ == Depth(); }

 private:
  int depth_ = Depth();
};

// Delays the signals that would end a forked process until it is destroyed. The server waits without a limit
// for the process that it exchanges messages with, and the stub for the one that has locked the region. Only
// SIGKILL cannot be delayed. Does nothing in the process that called Watch(), whose handlers ignore them.
class Undisturbed {
 public:
  Undisturbed();
  ~Undisturbed();
  Undisturbed(Undisturbed&&) = delete;

 private:
  const bool is_forked_;
  sigset_t before_;
};

}  // namespace envpack::forks
