// The real stub as a child process, started the way the server does.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "peer.h"

namespace envpack::test {

// Read from environment variables: ENVPACK_TEST_STUB is the stub executable, ENVPACK_TEST_LIBRARIES the
// folder of its libpython, ENVPACK_TEST_PYTHONPATH the folder of NumPy, ENVPACK_TEST_SCRATCH an empty folder.
struct Setup {
  std::string stub, libraries, python_path, scratch;
};
const Setup& TheSetup();

// Creates a model folder with one file; with empty code, the folder only. Returns the path of model.py.
std::string WriteModel(const std::string& code);

class StubProcess {
 public:
  struct Options {
    bool with_libpython = true;
    bool with_gpu = false;  // load the fake CUDA driver in ENVPACK_TEST_CUDA
    std::string growth = "1048576";
    long file_limit = 0;                      // maximum size of files in bytes
    bool ignores_children = false;            // start with SIGCHLD ignored
    bool sets_release = true;                 // in ENVPACK_TRITON_RELEASE
    std::vector<std::string> variables = {};  // additional variables, as "NAME=value"
    std::string stub = "";                    // the executable, if not that of the setup
    std::string backend = "";                 // the backend's folder, if not a new one
    std::string library_path = "";            // LD_LIBRARY_PATH, if not the folder of libpython
    std::string packages = "";                // the folder of NumPy, if not that of the setup
    int arguments = 0;                        // number of arguments, if not that of the release
  };
  StubProcess(Peer& peer, const std::string& model_file) : StubProcess(peer, model_file, Options{}) {}
  StubProcess(Peer& peer, const std::string& model_file, const Options& options);
  // Kills the process if it runs.
  ~StubProcess();
  StubProcess(const StubProcess&) = delete;
  StubProcess& operator=(const StubProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Waits some seconds for the end of the process and returns its exit status; 128 + n for signal n.
  int Wait();
  bool Runs();
  // The output on stdout and stderr so far.
  std::string Output() const;

 private:
  pid_t pid_;
  std::string output_;
  bool ended_ = false;
};

// Exit status of a program without arguments and with an empty environment.
int StatusOf(const std::string& program);

}  // namespace envpack::test
