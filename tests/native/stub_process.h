// The real stub as a child process, started as the server starts it.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "peer.h"

namespace envpack::test {

// Made from the environment of the test: ENVPACK_TEST_STUB is the stub's file, ENVPACK_TEST_LIBRARIES the
// folder of its libpython, ENVPACK_TEST_PYTHONPATH where NumPy is, ENVPACK_TEST_SCRATCH an empty folder.
struct Setup {
  std::string stub, libraries, python_path, scratch;
};
const Setup& TheSetup();

// A model folder with one file; an empty text makes the folder only. Returns the path of model.py.
std::string WriteModel(const std::string& code);

class StubProcess {
 public:
  struct Options {
    bool with_libpython = true;
    bool with_gpu = false;  // the stand-in for a GPU's driver, in ENVPACK_TEST_CUDA
    std::string growth = "1048576";
    long file_limit = 0;                      // bytes that the process may extend a file to
    bool tells_release = true;                // by ENVPACK_TRITON_RELEASE
    std::vector<std::string> variables = {};  // more of the environment, as "NAME=value"
    std::string stub = "";                    // its file, if not the one of the setup
    std::string backend = "";                 // folder of the backend, if not one made for it
    std::string packages = "";                // where NumPy is, if not where the setup says
    int arguments = 0;                        // how many it is given, if not as many as the release gives
  };
  StubProcess(Peer& peer, const std::string& model_file) : StubProcess(peer, model_file, Options{}) {}
  StubProcess(Peer& peer, const std::string& model_file, const Options& options);
  // Kills it if it still runs.
  ~StubProcess();
  StubProcess(const StubProcess&) = delete;
  StubProcess& operator=(const StubProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Waits some seconds for its end and returns its exit status; 128 + n for signal n.
  int Wait();
  bool Runs();
  // What it wrote to stdout and stderr so far.
  std::string Output() const;

 private:
  pid_t pid_;
  std::string output_;
  bool ended_ = false;
};

// Exit status of a program run with these arguments and exactly this environment.
int StatusOf(const std::string& program);

}  // namespace envpack::test
