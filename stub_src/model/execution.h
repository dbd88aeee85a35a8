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

// Needs the GIL, also to be destroyed. The answer shares the bytes of Python objects that the Execution
// keeps, so it must live until the server has read the answer.
class Execution {
 public:
  // `name` is that of the model instance, for messages; both references must outlive the Execution.
  Execution(std::vector<abi::Request> values, const std::string& name, abi::Wire& wire);

  // Calls the model's execute(). Throws pybind11::error_already_set if that raises, and
  // module::ModelException if its result breaks the contract.
  abi::ExecuteAnswer Run(const pybind11::object& execute, EventLoop& loop);

  // The answer when Run() has thrown, or when its answer could not be written: no request can be answered any
  // more.
  abi::ExecuteFailure Fail(const std::string& text);

  // The answer is about to be sent. Call it without the GIL.
  void Settle();

  // The server has read the answer, whichever it was.
  void Finish();

 private:
  void RunDecoupled(const pybind11::object& result, EventLoop& loop) const;
  abi::ExecuteAnswer Take(const pybind11::object& result);
  std::shared_ptr<module::InferenceResponse> TakeOne(pybind11::handle item,
                                                     module::InferenceRequest& request);

  const std::string& name_;
  abi::Wire& wire_;
  std::vector<std::shared_ptr<module::InferenceRequest>> requests_;
  std::vector<std::shared_ptr<module::InferenceResponse>> responses_;  // null where nothing is sent now
};

}  // namespace envpack::model
