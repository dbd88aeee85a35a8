// The asyncio loop that runs what a model defines with `async def`.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <optional>

#include "abi/values.h"

namespace envpack::model {

// Runs in a daemon thread that starts with the first coroutine, and outlives everything that a coroutine
// raises, SystemExit included. Needs the GIL.
class EventLoop {
 public:
  ~EventLoop();

  // Whether a value is a coroutine, also one of a compiler such as Cython. A generator is none.
  static bool IsCoroutine(const pybind11::object& value);

  // Runs a coroutine and returns its result, or raises its exception. Releases the GIL meanwhile.
  pybind11::object Await(const pybind11::object& coroutine);

  // Stops the loop, if it runs. Does not cancel running coroutines.
  void Stop();

  // Starts a coroutine, and keeps it until it ends, since asyncio has weak references only. Ignores its
  // result, and calls `on_end` in the loop's thread, with the text of its exception if any.
  using EndHandler = std::function<void(const std::optional<abi::Failure>&)>;
  void Spawn(const pybind11::object& coroutine, const EndHandler& on_end);

 private:
  pybind11::object Submit(const pybind11::object& coroutine);

  pybind11::object loop_;
  pybind11::set spawned_;  // futures
};

}  // namespace envpack::model
