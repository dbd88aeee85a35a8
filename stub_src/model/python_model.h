// The user's TritonPythonModel, from import to finalize.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <map>
#include <string>

#include "abi/launch.h"
#include "abi/release.h"
#include "abi/values.h"
#include "model/execution.h"

namespace envpack::model {

// Every function needs the GIL. Throws pybind11::error_already_set if the model raises, and
// module::ModelException if the model or its result is invalid.
class PythonModel {
 public:
  // Extends sys.path, completes pb_utils, imports the model's file and gets its class.
  explicit PythonModel(const abi::Launch& launch);

  // Makes an imported model that of one instance. `is_warm`: a template has imported it.
  void BecomeInstance(const std::string& name, bool is_warm) {
    instance_name_ = name;
    is_warm_ = is_warm;
  }

  // Returns the completed configuration, as JSON.
  std::string AutoComplete(const std::string& model_config);

  void Initialize(const std::map<std::string, std::string>& arguments);
  bool IsInitialized() const { return static_cast<bool>(instance_); }

  // Runs one batch. Throws what Execution::Run() throws.
  abi::ExecuteAnswer Execute(Execution& execution);

  // Whether the model has is_ready(), and its result. IsReady() throws if the result is not a bool.
  bool HasReadiness() const;
  bool IsReady();

  // Logs what the model raises.
  void Finalize();

  // One line of JSON for verification: Python, NumPy, stub, release and instance that run, and the seconds
  // that the import of the model's file and initialize() took.
  std::string Describe(abi::Release server) const;

 private:
  std::string instance_name_;  // of the model if it completes its configuration
  std::string file_;
  bool is_warm_ = false;
  std::chrono::duration<double> import_time_{};
  std::chrono::duration<double> initialize_time_{};
  pybind11::object class_;
  pybind11::object instance_;
  EventLoop loop_;
};

}  // namespace envpack::model
