// Work in a process of its own, so that nothing it does can end the conversation with the server.
#pragma once

#include <sys/types.h>

#include <functional>

#include "abi/values.h"

namespace envpack::channel {

// What the child is about, for the case that it does not live to say more.
enum class Step : char { kStart = 1, kImport, kComplete };

// What a child tells its parent. The kernel keeps it, so it is there whatever ends the child, and however
// long it is; a pipe would stay open in processes that the model has started.
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

  // The parent's side, once the child has ended with this status of waitpid(): the child's answer, or how it
  // ended without one.
  abi::AutoCompleteAnswer Read(int status) const;

 private:
  int descriptor_;
};

// Starts with its construction. No other thread may hold a lock then that the work needs, and the thread that
// constructs it must live as long as the process: the kernel ends the child with that thread.
class GuardedChild {
 public:
  // Throws std::system_error if there can be no further process.
  explicit GuardedChild(const std::function<void(Report&)>& work);
  GuardedChild(const GuardedChild&) = delete;
  GuardedChild& operator=(const GuardedChild&) = delete;

  // Waits for the end of the work.
  abi::AutoCompleteAnswer Wait() const;

 private:
  Report report_;
  pid_t pid_;
};

}  // namespace envpack::channel
