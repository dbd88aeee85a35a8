// The interface between the two halves of the stub: main.cc, which needs no Python, and the body, which does.
#pragma once

#include "abi/release.h"

namespace envpack {

// Name and type of the only function that the body exports. Its arguments are the server's command line and
// release. It returns the exit status of the process.
inline constexpr char kBodyEntry[] = "envpack_stub_run";
using BodyEntry = int (*)(int argc, const char* const* argv, abi::Release release);

}  // namespace envpack
