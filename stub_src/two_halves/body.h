// The interface between the two halves of the stub: the front, which needs no Python, and the body, which
// does.
#pragma once

#include <signal.h>

#include <cstddef>
#include <memory>
#include <string>
#include <variant>

#include "abi/journal.h"
#include "abi/launch.h"
#include "abi/release.h"
#include "abi/values.h"
#include "channel/report.h"

namespace envpack {

// What the front asks of a worker.
struct Assignment {
  const abi::Launch& launch;
  abi::Release release;
  const abi::Command& command;  // completes a configuration, or initializes an instance
  channel::Report& report;
  std::shared_ptr<abi::Journal> journal;
  int journal_file;          // descriptor of its memory
  int crash_output;          // descriptor for the traceback of a crash
  bool may_run_out_of_time;  // the front ends a worker whose execute() takes too long
  std::size_t restarts;      // of this instance, this worker's included
  std::string last_death;    // why there was the last one; a sentence
};

// What the front asks of a template: to import the model once, and to fork workers for the stubs that ask for
// one at `listener`, a socket.
struct TemplateTask {
  const abi::Launch& launch;  // of the stub that makes the template
  abi::Release release;
  bool uses_environment;
  int listener;
};

// To run a model without a server, for envpack at the other end of `socket`.
struct LocalTask {
  int socket;
};

using Task = std::variant<const Assignment*, const TemplateTask*, const LocalTask*>;

// Name and type of the only function that the body exports. It returns the exit status of the process.
inline constexpr char kBodyEntry[] = "envpack_stub_run";
using BodyEntry = int (*)(const Task& task);

// The signal that makes a worker print where each of its threads stands. Not one that libraries use.
inline int TracebackSignal() { return SIGRTMAX - 2; }

}  // namespace envpack
