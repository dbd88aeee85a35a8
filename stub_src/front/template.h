// The front's side of a template: finds the one of its model, or makes it.
#pragma once

#include <sys/types.h>

#include "base/descriptor.h"
#include "two_halves/body.h"

namespace envpack::front {

// Behind the server's arguments: runs the executable as a template. Behind it: the descriptor of a listening
// socket, the server's release, and whether the model has an environment (0 or 1).
inline constexpr char kTemplateOption[] = "--template";
inline constexpr int kTemplateArguments = 4;

// A connection to a template.
struct Template {
  Descriptor socket;
  pid_t child = 0;  // the template if this process has made it
};

// Connects to the template of the model, or makes one. It serves stubs only that agree in model, version,
// code, environment, variables, user and server. The completion of a configuration begins a load, for which
// a template of an earlier one is not used. Throws std::runtime_error if there can be none.
Template FindTemplate(const Assignment& assignment, bool uses_environment);

}  // namespace envpack::front
