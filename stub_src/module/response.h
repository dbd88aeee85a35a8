// pb_utils.InferenceResponse.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "abi/values.h"
#include "abi/wire.h"
#include "module/tensor.h"

namespace envpack::module {

// Create and destroy it with the GIL.
class InferenceResponse {
 public:
  // Throws ModelException if a tensor is null.
  InferenceResponse(std::vector<std::shared_ptr<Tensor>> outputs, std::optional<abi::Error> error,
                    std::string parameters = "");

  // The server's.
  explicit InferenceResponse(abi::Response value);

  const std::vector<std::shared_ptr<Tensor>>& outputs() const { return outputs_; }
  const std::optional<abi::Error>& error() const { return error_; }
  const std::string& parameters() const { return parameters_; }

  // Removes the outputs that nobody asked for, from this very object: that is the contract. An empty set of
  // names asks for everything.
  void Prune(const std::set<std::string>& requested);

  // Shares the bytes of the outputs: valid while this response lives.
  abi::Response ToValue() const;

 private:
  std::vector<std::shared_ptr<Tensor>> outputs_;
  std::optional<abi::Error> error_;
  std::string parameters_;  // a JSON object, or empty
};

// Throws ModelException if the response has parameters and the server is too old for them.
void RequireParameters(const abi::Wire& wire, const InferenceResponse& response);

void BindResponse(pybind11::module_& module);

}  // namespace envpack::module
