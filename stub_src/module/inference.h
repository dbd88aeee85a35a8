// Business logic scripting (BLS): requests that a model sends to other models.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "abi/values.h"
#include "base/forks.h"
#include "channel/streams.h"
#include "module/request.h"
#include "module/response.h"

namespace envpack::module {

// The iterator over the responses of a decoupled model. Create, use and destroy it with the GIL. Abandons the
// stream if it is destroyed before the last response has arrived.
class ResponseIterator {
 public:
  ResponseIterator(channel::Streams::Opened opened, std::shared_ptr<channel::Streams> streams);
  ~ResponseIterator();
  ResponseIterator(const ResponseIterator&) = delete;
  ResponseIterator& operator=(const ResponseIterator&) = delete;

  // After the last response, iteration restarts from the first.
  void Restart();

  // Waits for the next response without the GIL. Throws pybind11::stop_iteration after the last one.
  std::shared_ptr<InferenceResponse> Next();

  // Requests the cancellation of a running request. Throws ModelException if the server lacks the feature.
  void Cancel();

 private:
  abi::InferResponse Take();

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

// Sends the request and waits for the response without the GIL. Returns an InferenceResponse, or with
// `decoupled` a ResponseIterator. An error of the other model is a response with an error. Throws
// ModelException outside of execute().
pybind11::object Infer(const std::shared_ptr<InferenceRequest>& request, bool decoupled);

// The same as an awaitable of the running event loop, whose executor waits.
pybind11::object InferAsync(const std::shared_ptr<InferenceRequest>& request, bool decoupled);

}  // namespace envpack::module
