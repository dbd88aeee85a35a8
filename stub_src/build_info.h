// What this stub was built for. The values are in build_info.cc, the one file of the executable that CMake
// writes anew for each Python, so everything else that needs no Python is compiled once.
#pragma once

namespace envpack::build {

extern const char* const kVersion;
extern const char* const kReleases;
extern const char* const kPythonMinor;
extern const char* const kLibpython;
extern const char* const kCompiler;

}  // namespace envpack::build
