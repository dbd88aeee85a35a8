// Exceptions of the model's code as values.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <optional>

#include "abi/values.h"
#include "model/interpreter.h"

namespace envpack::model {

// Runs `action` and returns the text of what it raised. Also SystemExit and KeyboardInterrupt end here: a
// model that calls sys.exit() fails its request, it does not take the process with it.
template <typename Action>
std::optional<abi::Failure> Attempt(Action action) {
  try {
    action();
    EndIfForked();
    return std::nullopt;
  } catch (pybind11::error_already_set& error) {
    EndIfForked(error);
    return abi::Failure{error.what()};
  } catch (const std::exception& error) {
    EndIfForked();
    return abi::Failure{error.what()};
  }
}

}  // namespace envpack::model
