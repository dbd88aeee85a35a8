// The metric by which people notice that a model's process has died.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "abi/wire.h"

namespace envpack::model {

// Raises the server's counter envpack_restarts_total of this model by one. `arguments` are those of
// initialize(). Does nothing for servers without custom metrics. Throws abi::ServerError.
void CountRestart(abi::Wire& wire, const std::map<std::string, std::string>& arguments);

}  // namespace envpack::model
