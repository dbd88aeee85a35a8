// One batch of requests: from the command to the answer.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "abi/values.h"
#include "abi/wire.h"
#include "model/event_loop.h"
#include "module/request.h"
#include "module/response.h"

namespace envpack::model {

// Needs the GIL, also for its destruction. The answer refers to the bytes of Python objects that the
// Execution keeps, so it must live until the server has read the answer.
class Execution {
 public:
  // `name` is the model instance's, for messages. Both references must outlive the Execution.
  Execution(std::vector<abi::Request> values, const std::string& name, abi::Wire& wire);

  // Calls the model's execute(). Throws pybind11::error_already_set if it raises, and module::ModelException
  // for an invalid result.
  abi::ExecuteAnswer Run(const pybind11::object& execute, EventLoop& loop);

  // The answer when Run() has thrown, or when its answer could not be written.
  abi::ExecuteFailure Fail(const std::string& reason);

  // Call it before the answer is sent, without the GIL.
  void EndUses();

  // Call it when the server has read the answer.
  void Finish();

 private:
  void RunDecoupled(const pybind11::object& result, EventLoop& loop);
  void Spawn(const pybind11::object& coroutine, EventLoop& loop) const;
  abi::ExecuteAnswer Take(const pybind11::object& result);
  bool IsAnswered(std::size_t index) const {
    return index < responses_.size() && responses_[index] != nullptr;
  }
  bool IsLost(std::size_t index) const;
  // Fails the requests that nothing of the model can answer any more: the server would wait for ever. Throws
  // module::ModelException if that are all of them.
  void FailLost() const;
  std::shared_ptr<module::InferenceResponse> TakeOne(pybind11::handle item,
                                                     module::InferenceRequest& request);

  const std::string& name_;
  abi::Wire& wire_;
  std::vector<std::shared_ptr<module::InferenceRequest>> requests_;
  std::vector<std::shared_ptr<module::InferenceResponse>> responses_;  // null if no response is sent now
};

}  // namespace envpack::model
