// Business logic scripting: requests that a model sends to other models.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "module/request.h"

namespace envpack::module {

// Runs the request and waits for it without the GIL. Returns an InferenceResponse, or with `decoupled` a
// ResponseIterator. What goes wrong with the model asked is a response with an error; only asking at the
// wrong time throws ModelException.
pybind11::object Infer(const std::shared_ptr<InferenceRequest>& request, bool decoupled);

// The same as an awaitable of the running event loop, whose executor does the waiting.
pybind11::object InferAsync(const std::shared_ptr<InferenceRequest>& request, bool decoupled);

void BindInference(pybind11::module_& module);

}  // namespace envpack::module
