#include "model/event_loop.h"

#include "model/interpreter.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

// asyncio hands SystemExit and KeyboardInterrupt of a coroutine to its future, and raises them out of
// run_forever() too: before the future's owner knows of them, and while other coroutines run.
void RunUntilStopped(const py::object& loop) {
  for (;;) {
    try {
      loop.attr("run_forever")();
      return;
    } catch (const py::error_already_set& error) {
      if (error.matches(PyExc_Exception)) throw;  // of the loop itself, for example because it was closed
    }
  }
}

}  // namespace

EventLoop::~EventLoop() { Stop(); }

bool EventLoop::IsCoroutine(const py::object& value) {
  if (PyCoro_CheckExact(value.ptr())) return true;
  if (value.is_none() || py::isinstance<py::list>(value) || py::isinstance<py::bool_>(value)) return false;
  return py::isinstance(value, py::module_::import("collections.abc").attr("Coroutine"));
}

void EventLoop::Stop() {
  if (!loop_) return;
  try {
    loop_.attr("call_soon_threadsafe")(loop_.attr("stop"));
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("stop of the event loop");
  }
  loop_ = py::object();
}

py::object EventLoop::Submit(const py::object& coroutine) {
  const auto asyncio = py::module_::import("asyncio");
  if (!loop_) {
    loop_ = asyncio.attr("new_event_loop")();
    const auto thread = py::module_::import("threading").attr("Thread");
    const py::cpp_function target([loop = loop_] { RunUntilStopped(loop); });
    thread(py::arg("target") = target, py::arg("daemon") = true).attr("start")();
  }
  return asyncio.attr("run_coroutine_threadsafe")(coroutine, loop_);
}

py::object EventLoop::Await(const py::object& coroutine) { return Submit(coroutine).attr("result")(); }

void EventLoop::Spawn(const py::object& coroutine, const EndHandler& on_end) {
  const py::object future = Submit(coroutine);
  spawned_.add(future);  // which refers to the task
  future.attr("add_done_callback")(py::cpp_function([spawned = spawned_, on_end](const py::object& done) {
    spawned.attr("discard")(done);
    on_end(CallModel([&] { done.attr("result")(); }));
  }));
}

}  // namespace envpack::model
