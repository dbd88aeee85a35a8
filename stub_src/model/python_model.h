// The user's TritonPythonModel, from import to finalize.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <map>
#include <string>

#include "abi/launch.h"
#include "abi/values.h"
#include "abi/wire.h"
#include "model/event_loop.h"
#include "model/execution.h"

namespace envpack::model {

// Every function needs the GIL, and throws pybind11::error_already_set when the model raises and
// module::ModelException when it breaks the contract.
class PythonModel {
 public:
  // Extends sys.path, completes pb_utils, imports the model's file and finds its class.
  PythonModel(const abi::Launch& launch, abi::Wire& wire);

  // Returns the completed configuration, as JSON.
  std::string AutoComplete(const std::string& model_config);

  void Initialize(const std::map<std::string, std::string>& arguments);

  // Runs one batch. Throws what Execution::Run() throws.
  abi::ExecuteAnswer Execute(Execution& execution);

  // Whether the model can say whether it is ready, and what it says. Throws what IsReady() raises, and if
  // that is not a bool.
  bool HasReadiness() const;
  bool IsReady();

  // What the model raises here is logged and goes no further.
  void Finalize();

  // One line of JSON that tells verification what really runs (Python, NumPy, stub, release, instance) and
  // how many seconds the import of the model's file and its initialize took.
  std::string Describe() const;

 private:
  const abi::Launch& launch_;
  const abi::Wire& wire_;
  std::chrono::duration<double> import_time_{};
  std::chrono::duration<double> initialize_time_{};
  pybind11::object class_;
  pybind11::object instance_;
  EventLoop loop_;
};

}  // namespace envpack::model
