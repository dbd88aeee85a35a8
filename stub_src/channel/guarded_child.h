// Runs work in a child process, so that it cannot end the session with the server.
#pragma once

#include <sys/types.h>

#include <functional>

#include "abi/values.h"

namespace envpack::channel {

// The step that the child is running, for the error message if it does not survive the step.
enum class Step : char { kStart = 1, kImport, kComplete };

// The report of a child to its parent, in a memory file. It survives any end of the child and has no size
// limit. A pipe would remain open in processes that the model has started.
class Report {
 public:
  // Throws std::system_error.
  Report();
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // The child's side.
  void Reach(Step step);
  void Finish(const abi::AutoCompleteAnswer& answer);

  // The parent's side, after the child has ended with this status of waitpid(): the child's answer, or how it
  // ended without one.
  abi::AutoCompleteAnswer Read(int status) const;

 private:
  int descriptor_;
};

// The constructor starts the child. At that time no other thread may run, since the child inherits the locks
// that it has; see Heartbeat::Pause(). The
// constructing thread must live as long as the process: the kernel kills the child when that thread ends.
class GuardedChild {
 public:
  // Throws std::system_error if the process cannot be created.
  explicit GuardedChild(const std::function<void(Report&)>& work);
  GuardedChild(const GuardedChild&) = delete;
  GuardedChild& operator=(const GuardedChild&) = delete;

  // Waits for the end of the child.
  abi::AutoCompleteAnswer Wait() const;

 private:
  Report report_;
  pid_t pid_;
};

}  // namespace envpack::channel
