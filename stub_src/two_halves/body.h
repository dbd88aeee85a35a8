// The interface between the halves of the stub: the front, without Python, and the body, which embeds it.
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
#include "base/descriptor.h"
#include "channel/report.h"

namespace envpack {

// What the front asks of a worker.
struct Assignment {
  abi::Launch launch;
  abi::Release release = 0;
  abi::Command command;                 // completes a configuration, or initializes an instance
  bool may_run_out_of_time = false;     // the front ends a worker whose execute() takes too long
  bool initialize_in_template = false;  // a template forks workers whose model is initialized
  std::size_t restarts = 0;             // of this instance, this worker's included
  std::string last_death = "";          // why there was the last one; a sentence
  // Files in memory that front and worker share; the last one is for the traceback of a crash.
  std::shared_ptr<channel::Report> report = nullptr;
  std::shared_ptr<abi::JournalFile> journal = nullptr;
  std::shared_ptr<const Descriptor> crash_output = nullptr;
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

// For a worker, a template, or a process that no server has started: loads libpython and the body, and does
// the task. Returns the exit status. If it cannot, a worker says so in its report.
int RunBody(const Task& task);

}  // namespace envpack
