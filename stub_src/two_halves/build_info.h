// What this stub was built for. CMake writes build_info.cc for each Python.
#pragma once

namespace envpack::build {

extern const char* const kVersion;
extern const char* const kReleases;
extern const char* const kPythonMinor;
extern const char* const kLibpython;
extern const char* const kCompiler;

}  // namespace envpack::build
