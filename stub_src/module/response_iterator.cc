#include "module/response_iterator.h"

#include <utility>

#include "module/requirement.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::module {

ResponseIterator::ResponseIterator(channel::Streams::Opened opened, std::shared_ptr<channel::Streams> streams)
    : streams_(std::move(streams)), id_(opened.id), stream_(std::move(opened.stream)) {}

ResponseIterator::~ResponseIterator() {
  if (has_last_ || !maker_.IsThisProcess()) return;
  const py::gil_scoped_release unlocked;
  streams_->Abandon(id_);
}

void ResponseIterator::Restart() {
  if (is_exhausted_) position_ = 0;
  is_exhausted_ = false;
}

// A last response without the stream's name, which may be another stream's, ends the iteration only.
abi::InferResponse ResponseIterator::Take() {
  abi::InferResponse response = stream_->Take();
  if (response.is_last) {
    response.stream == id_ ? streams_->Close(id_) : streams_->Abandon(id_);
  }
  return response;
}

std::shared_ptr<InferenceResponse> ResponseIterator::Next() {
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

void ResponseIterator::Cancel() {
  Require(*TheServer().wire, abi::Feature::kCancelledStreams, "Cancelling a request to another model needs");
  const py::gil_scoped_release unlocked;
  streams_->Cancel(id_);
}

void BindResponseIterator(py::module_& module) {
  py::class_<ResponseIterator, std::shared_ptr<ResponseIterator>>(module, "ResponseIterator")
      .def("__iter__",
           [](const std::shared_ptr<ResponseIterator>& self) {
             self->Restart();
             return self;
           })
      .def("__next__", &ResponseIterator::Next)
      .def("cancel", &ResponseIterator::Cancel);
}

}  // namespace envpack::module
