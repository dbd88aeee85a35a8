// How a worker died.
#pragma once

#include <memory>
#include <string>

#include "base/descriptor.h"

namespace envpack::front {

// What a worker writes when it crashes: Python's traceback, in a memory file, since it must reach both the
// server's log and the error of its requests.
class CrashOutput {
 public:
  // Throws std::system_error.
  CrashOutput();

  // The worker's crash handler makes this its standard error.
  std::shared_ptr<const Descriptor> file() const { return file_; }

  // How the worker has ended, from its status of waitpid(): "exited with status 3", or "was killed by signal
  // 11 (SIGSEGV) at model.py:12 in execute". kUnknownStatus is described as an end that was not seen. Moves
  // what the worker has written to this process's standard error.
  std::string DescribeEnd(int status, const std::string& model_file);

 private:
  std::string Pass(const std::string& model_file);

  const std::shared_ptr<const Descriptor> file_;
};

}  // namespace envpack::front
