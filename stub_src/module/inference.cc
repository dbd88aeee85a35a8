#include "module/inference.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "abi/values.h"
#include "base/forks.h"
#include "channel/streams.h"
#include "module/module.h"
#include "module/response.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

constexpr const char* kStreamsAre = "Streams of responses are";

// The iterator over the responses of a decoupled model. Create, use and destroy it with the GIL. Abandons the
// stream if it is destroyed before the last response has arrived.
class ResponseIterator {
 public:
  ResponseIterator(channel::Streams::Opened opened, std::shared_ptr<channel::Streams> streams)
      : streams_(std::move(streams)), id_(opened.id), stream_(std::move(opened.stream)) {}

  ~ResponseIterator() {
    if (has_last_ || !owner_process_.IsThisProcess()) return;
    const py::gil_scoped_release unlocked;
    streams_->Abandon(id_);
  }

  // After the last response, iteration restarts from the first.
  void Restart() {
    if (is_exhausted_) position_ = 0;
    is_exhausted_ = false;
  }

  // Waits for the next response without the GIL. Throws pybind11::stop_iteration after the last one.
  std::shared_ptr<InferenceResponse> Next() {
    RequireOwner(owner_process_, kStreamsAre);
    std::unique_lock taking(taking_, std::defer_lock);
    {
      const py::gil_scoped_release unlocked;
      taking.lock();
    }
    if (position_ == seen_.size()) {
      if (has_last_) {
        is_exhausted_ = true;
        throw py::stop_iteration("Iteration is done for the responses.");
      }
      abi::InferResponse response;
      {
        const py::gil_scoped_release unlocked;
        response = Take();
      }
      has_last_ = response.is_last;
      seen_.push_back(std::make_shared<InferenceResponse>(std::move(response.response)));
    }
    return seen_[position_++];
  }

  // Requests the cancellation of a running request. Throws ModelException if the server lacks the feature.
  void Cancel() {
    RequireOwner(owner_process_, kStreamsAre);
    Require(*TheServer().wire, abi::Feature::kCancelledStreams,
            "Cancelling a request to another model needs");
    try {
      const py::gil_scoped_release unlocked;
      streams_->Cancel(id_);
    } catch (const abi::RegionFull& error) {
      throw ModelException(error.what());
    }
  }

 private:
  // A last response without a stream id may belong to another stream, so it only ends the iteration.
  abi::InferResponse Take() {
    abi::InferResponse response = stream_->Take();
    if (response.is_last) {
      response.stream == id_ ? streams_->Close(id_) : streams_->Abandon(id_);
    }
    return response;
  }

  const std::shared_ptr<channel::Streams> streams_;
  const forks::OwnerProcess owner_process_;
  const abi::StreamId id_;
  const std::shared_ptr<channel::Stream> stream_;
  std::mutex taking_;  // held while waiting for a response, so never locked with the GIL held
  std::vector<std::shared_ptr<InferenceResponse>> seen_;
  std::size_t position_ = 0;
  bool has_last_ = false;
  bool is_exhausted_ = false;
};

// Runs `call` without the GIL. Converts an exception by `to_response`.
template <typename Call, typename ToResponse>
auto CallOtherModel(Call call, ToResponse to_response) {
  return Unlocked([&] {
    try {
      return call();
    } catch (const std::exception& error) {
      return to_response(abi::Error{error.what(), abi::ErrorCode::kInternal});
    }
  });
}

}  // namespace

void BindInference(py::module_& module) {
  py::class_<ResponseIterator, std::shared_ptr<ResponseIterator>>(module, "ResponseIterator")
      .def("__iter__",
           [](const std::shared_ptr<ResponseIterator>& self) {
             self->Restart();
             return self;
           })
      .def("__next__", &ResponseIterator::Next)
      .def("cancel", &ResponseIterator::Cancel);
}

py::object Infer(const std::shared_ptr<InferenceRequest>& request, bool decoupled) {
  const ServerLink& link = TheServer();
  const auto streams = link.streams;
  if (!streams) throw ModelException("BLS is only supported during the 'execute' function.");
  abi::Wire& wire = *link.wire;
  const abi::Request value = request->ToValue();
  if (std::holds_alternative<std::string>(value.correlation_id)) {
    Require(wire, abi::Feature::kTextCorrelationIds, "Correlation IDs that are strings need");
  }
  if (value.parameters != abi::Request().parameters) {
    Require(wire, abi::Feature::kRequestParameters, "Parameters of a model's own request need");
  }
  if (decoupled) {
    if (forks::Depth() > 0) {
      throw ModelException(
          "Streams of responses are available in the model's process only, not in a forked one.");
    }
    auto opened = CallOtherModel([&] { return streams->Start(value); }, &channel::Streams::OnlyError);
    return py::cast(std::make_shared<ResponseIterator>(std::move(opened), streams));
  }
  abi::Response response =
      CallOtherModel([&] { return wire.Infer(value, false).response; },
                     [](abi::Error error) { return abi::Response{{}, std::move(error), ""}; });
  return py::cast(std::make_shared<InferenceResponse>(std::move(response)));
}

// asyncio.get_running_loop(), which Python 3.6 does not have.
py::object RunningLoop() {
  py::object loop = py::module_::import("asyncio").attr("_get_running_loop")();
  if (loop.is_none()) throw std::runtime_error("no running event loop");
  return loop;
}

py::object InferAsync(const std::shared_ptr<InferenceRequest>& request, bool decoupled) {
  return RunningLoop().attr("run_in_executor")(
      py::none(), py::cpp_function([request, decoupled] { return Infer(request, decoupled); }));
}

}  // namespace envpack::module
