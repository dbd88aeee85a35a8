// What signals do in this process.
#pragma once

#include <signal.h>

namespace envpack {

// A signal, and what it did at some time.
struct Disposition {
  int signal;
  struct sigaction action;
};

// Sets what a signal does, and returns what it did before. Async-signal-safe. The libraries of models do not
// expect that a call is interrupted.
inline struct sigaction SetHandler(int signal, void (*handler)(int)) {
  struct sigaction action{}, before{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, &before);
  return before;
}

}  // namespace envpack
