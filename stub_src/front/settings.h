// What users set: parameters of the model's configuration, or else environment variables.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "abi/values.h"

namespace envpack::front {

struct Settings {
  std::size_t most_deaths = 3;  // ENVPACK_RESTARTS: within a minute; 0 for no restart at all
  std::optional<std::chrono::milliseconds> execute_limit;  // ENVPACK_EXECUTE_TIMEOUT; none by default
  bool is_warm = false;                                    // ENVPACK_START
  bool initialize_in_template = false;                     // ENVPACK_TEMPLATE

  // `command` is the server's first one, which contains the configuration. Throws std::invalid_argument with
  // a message that names the setting.
  static Settings Of(const abi::Command& command);
};

// The `string_value` of a parameter in a configuration, JSON as the server writes it; or nothing.
std::optional<std::string> FindParameter(std::string_view configuration, std::string_view name);

}  // namespace envpack::front
