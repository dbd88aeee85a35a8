// The embedded Python.
#pragma once

#include <pybind11/pybind11.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "abi/values.h"
#include "module/error.h"

namespace envpack::model {

// Starts Python as a normal interpreter, not an isolated one: PYTHONPATH and similar variables apply. With an
// execution environment the user site is disabled unless ENVPACK_USER_SITE=1. Crashes print a traceback
// unless PYTHONFAULTHANDLER=0. The GIL is held afterwards. Returns why Python cannot start, if so: the
// standard library is missing, PYTHONHOME is wrong, and the like.
std::optional<abi::Failure> StartInterpreter(bool uses_environment);

// From now on the traceback of a crash names `instance` and goes to the descriptor `crash_output`. Until then
// it goes to standard error.
void NameCrashes(const std::string& instance, int crash_output);

// Lets a signal print where each thread stands.
void PrintTracebacksOn(int signal);

// Forks this process as Python's os.fork() does. Output that waits in buffers is written before. The child
// counts as the process that started the interpreter.
pid_t ForkInterpreter();

// Runs the model's atexit functions and flushes its output. Ends the process after some seconds, and does not
// wait for threads that the model has left running: the server would wait for this process.
void ShutDownInterpreter();

// A process that the model forks can return, or raise, from the model's code. It exits here as a Python
// program would, and does not continue as a second stub.
void ExitIfForked();
void ExitIfForked(pybind11::error_already_set& error);

// Runs `action`, which calls code of the model. Returns the message of what it raised, if anything, also of
// SystemExit and KeyboardInterrupt: sys.exit() fails the request but does not end the process.
template <typename Action>
std::optional<abi::Failure> CallModel(Action action) {
  auto failure = abi::Attempt([&] {
    try {
      action();
    } catch (pybind11::error_already_set& error) {
      ExitIfForked(error);
      throw module::ModelException(module::TextOf(error));
    }
  });
  ExitIfForked();
  return failure;
}

}  // namespace envpack::model
