// What a model may return from execute().
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "module/request.h"
#include "module/response.h"

namespace envpack::model {

using Requests = std::vector<std::shared_ptr<module::InferenceRequest>>;
using Responses = std::vector<std::shared_ptr<module::InferenceResponse>>;

// Checks the result against the contract and takes the responses out of it, pruned to what each request asked
// for. Throws module::ModelException with the contract's text if the result breaks it.
Responses TakeResponses(const pybind11::object& result, const Requests& requests);

}  // namespace envpack::model
