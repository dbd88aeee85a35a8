// Python's C API where its versions differ.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace envpack::model {

// What Python otherwise derives from the first executable `python3` on PATH.
struct Home {
  std::string prefix;      // of the environment: it contains lib/python<minor>
  std::string executable;  // sys.executable; the file need not be executable
};

struct PythonOptions {
  bool tracebacks = true;     // of crashes, by faulthandler
  bool no_user_site = false;  // whatever PYTHONNOUSERSITE says
  std::optional<Home> home;   // empty: Python searches by itself
};

// Initializes Python and returns what prevents it, or an empty text. It is a normal interpreter, not an
// isolated one, so that PYTHONPATH and similar variables apply; its output is UTF-8 in every locale, unless
// PYTHONIOENCODING is set; the GIL is held afterwards. Python 3.6 and 3.7 print the reason and abort instead.
std::string InitializePython(const PythonOptions& options);

// What os.fork() does around the fork.
void BeforePythonForks();
void AfterPythonForked(pid_t pid);

}  // namespace envpack::model
