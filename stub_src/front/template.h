// The front's side of a template: finds the one of its model, or makes it.
#pragma once

#include <sys/types.h>

#include "abi/launch.h"
#include "abi/release.h"
#include "base/descriptor.h"

namespace envpack::front {

// The stub's executable runs as a template if it is started with the server's arguments and, behind them,
// this one, the descriptor of a listening socket, the server's release, and whether the model has an
// environment (0 or 1).
inline constexpr char kTemplateOption[] = "--template";
inline constexpr int kTemplateArguments = 4;

// A connection to a template.
struct Template {
  Descriptor socket;
  pid_t child = 0;  // the template if this process has made it
};

// Connects to the template of the model, or makes one. It serves stubs only that agree in model, version,
// code, environment, variables, user and server. With `is_new_load`, a template of an earlier load is not
// used. Throws std::runtime_error if there can be none.
Template FindTemplate(const abi::Launch& launch, abi::Release release, bool uses_environment,
                      bool is_new_load);

}  // namespace envpack::front
