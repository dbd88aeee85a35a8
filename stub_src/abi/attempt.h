// Exceptions as values, for exchanges that must be completed whatever happens in them.
#pragma once

#include <exception>
#include <optional>
#include <string>

namespace envpack::abi {

// Runs `action` and returns the text of what it threw.
template <typename Action>
std::optional<std::string> Attempt(Action action) {
  try {
    action();
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace envpack::abi
