// pb_utils' iterator over the responses of a decoupled model.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "abi/values.h"
#include "channel/streams.h"
#include "forks.h"
#include "module/response.h"

namespace envpack::module {

// Create, use and destroy it with the GIL. If it goes before the last response has come, the stream is left
// to itself.
class ResponseIterator {
 public:
  ResponseIterator(channel::Streams::Opened opened, std::shared_ptr<channel::Streams> streams);
  ~ResponseIterator();
  ResponseIterator(const ResponseIterator&) = delete;
  ResponseIterator& operator=(const ResponseIterator&) = delete;

  // Once all responses have been seen, iterating starts again from the first.
  void Restart();

  // Waits for the next response without the GIL. Throws pybind11::stop_iteration after the last.
  std::shared_ptr<InferenceResponse> Next();

  // Has the server cancel the request, if it still runs. Throws ModelException if the server cannot.
  void Cancel();

 private:
  abi::InferResponse Take();

  const std::shared_ptr<channel::Streams> streams_;
  const forks::Maker maker_;
  const abi::StreamId id_;
  const std::shared_ptr<channel::Stream> stream_;
  std::mutex taking_;  // held while waiting for a response, so taken without the GIL
  std::vector<std::shared_ptr<InferenceResponse>> seen_;
  std::size_t position_ = 0;
  bool has_last_ = false;
  bool is_exhausted_ = false;
};

void BindResponseIterator(pybind11::module_& module);

}  // namespace envpack::module
