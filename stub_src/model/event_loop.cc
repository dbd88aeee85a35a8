#include "model/event_loop.h"

#include "abi/values.h"
#include "module/logger.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

void LogWhatWasRaised(const py::object& future) {
  if (future.attr("cancelled")().cast<bool>()) return;
  const py::object error = future.attr("exception")();
  if (error.is_none()) return;
  const auto type = py::type::of(error);
  const py::object lines =
      py::module_::import("traceback").attr("format_exception")(type, error, error.attr("__traceback__"));
  module::Log(py::str("").attr("join")(lines).cast<std::string>(), abi::LogLevel::kError);
}

}  // namespace

EventLoop::~EventLoop() { Stop(); }

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
    thread(py::arg("target") = loop_.attr("run_forever"), py::arg("daemon") = true).attr("start")();
  }
  return asyncio.attr("run_coroutine_threadsafe")(coroutine, loop_);
}

py::object EventLoop::Await(const py::object& coroutine) { return Submit(coroutine).attr("result")(); }

void EventLoop::Spawn(const py::object& coroutine) {
  Submit(coroutine).attr("add_done_callback")(py::cpp_function(&LogWhatWasRaised));
}

}  // namespace envpack::model
