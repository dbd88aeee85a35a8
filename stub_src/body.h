// The seam between the two halves of the stub file: main.cc, which needs no Python, and the body, which does.
#pragma once

#include "abi/release.h"

namespace envpack {

// Name and type of the one function that the body exports. It is given the server's command line and the
// server's release, and returns the exit status of the process.
inline constexpr char kBodyEntry[] = "envpack_stub_run";
using BodyEntry = int (*)(int argc, const char* const* argv, abi::Release release);

}  // namespace envpack
