// The embedded Python.
#pragma once

#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

namespace envpack::model {

// Python could not be started: no standard library where it looks, a broken PYTHONHOME, and the like.
class InterpreterFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Starts Python as a normal, not isolated, interpreter: PYTHONPATH and its kin are honoured on every version.
// With an execution environment the user site is off, whatever the environment says, unless
// ENVPACK_USER_SITE=1. A crash prints a traceback, unless PYTHONFAULTHANDLER=0; `instance` is named in it.
// The GIL is held afterwards.
void StartInterpreter(bool uses_environment, const std::string& instance);

// Runs what the model registered with atexit and flushes its output. Does not wait for threads that the model
// has left running: they would keep the server waiting for this process.
void EndInterpreter();

// Where the model's code has returned, or raised, a process that it has forked arrives as well. That one ends
// here, as a Python program would end: it must not go on as a second stub.
void EndIfForked();
void EndIfForked(pybind11::error_already_set& error);

}  // namespace envpack::model
