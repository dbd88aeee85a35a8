// How a worker died.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/descriptor.h"

namespace envpack::front {

// In words, from the status of waitpid(): "was killed by signal 11 (SIGSEGV)" or "exited with status 3".
// kUnknownStatus is described as an end that was not seen.
std::string DescribeEnd(int status);

// What a worker writes when it crashes: Python's traceback, in a memory file, since it must reach both the
// server's log and the error of its requests.
class CrashOutput {
 public:
  // Throws std::system_error.
  CrashOutput();

  // The worker's crash handler makes this its standard error.
  int descriptor() const { return file_.number(); }

  // Moves what has been written to this process's standard error. Returns the line of Python that crashed, as
  // in "model.py:12 in execute": the innermost one of `model_file` if there is one, else the innermost. Empty
  // if there is no traceback.
  std::string Pass(const std::string& model_file);

 private:
  Descriptor file_;
};

}  // namespace envpack::front
