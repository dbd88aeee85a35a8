// Parameters of the model's configuration.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace envpack::front {

// The `string_value` of the parameter `name` in a configuration, JSON as the server writes it. Nothing if
// there is none.
std::optional<std::string> FindParameter(std::string_view configuration, std::string_view name);

}  // namespace envpack::front
