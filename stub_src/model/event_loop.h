// The asyncio loop of a model whose execute() is a coroutine.
#pragma once

#include <pybind11/pybind11.h>

namespace envpack::model {

// One loop for the life of an instance, in a daemon thread that starts with the first coroutine. Needs the
// GIL.
class EventLoop {
 public:
  ~EventLoop();

  // Runs a coroutine to its end and returns its result, or raises what it raised. Gives up the GIL meanwhile.
  pybind11::object Await(const pybind11::object& coroutine);

  // Ends the loop, if one ever ran. Coroutines that still run are left where they are.
  void Stop();

  // Lets a coroutine run by itself. What it raises is logged, its result is nobody's.
  void Spawn(const pybind11::object& coroutine);

 private:
  pybind11::object Submit(const pybind11::object& coroutine);

  pybind11::object loop_;
};

}  // namespace envpack::model
