// Business logic scripting (BLS): requests that a model sends to other models.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "module/request.h"

namespace envpack::module {

// Sends the request and waits for the response without the GIL. Returns an InferenceResponse, or with
// `decoupled` a ResponseIterator. An error of the other model is a response with an error. Throws
// ModelException outside of execute().
pybind11::object Infer(const std::shared_ptr<InferenceRequest>& request, bool decoupled);

// The same as an awaitable of the running event loop, whose executor waits.
pybind11::object InferAsync(const std::shared_ptr<InferenceRequest>& request, bool decoupled);

}  // namespace envpack::module
