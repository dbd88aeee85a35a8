// What stubs must agree in to share a template.
#pragma once

#include <string>

#include "abi/launch.h"

namespace envpack::front {

// A name of at most 64 characters: a hash of model, version, code, environment, variables, user, server and
// stub. Throws std::runtime_error if the model has too many files.
std::string TemplateKey(const abi::Launch& launch, bool uses_environment);

}  // namespace envpack::front
