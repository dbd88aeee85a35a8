#include "stub_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "check.h"

namespace envpack::test {

namespace {

namespace fs = std::filesystem;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw Failed(std::string("these tests need the variable ") + name);
  return value;
}

int StatusFrom(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// A replacement for the server's module, with the functions that the stub uses.
constexpr char kUtilities[] = R"(import json


class ModelConfig:
    def __init__(self, model_config):
        self._model_config = json.loads(model_config)


def get_input_tensor_by_name(request, name):
    return next((tensor for tensor in request.inputs() if tensor.name() == name), None)
)";

[[noreturn]] void Become(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment) {
  std::vector<char*> argv, envp;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& variable : environment) envp.push_back(const_cast<char*>(variable.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  execve(argv[0], argv.data(), envp.data());
  _exit(127);
}

}  // namespace

const Setup& TheSetup() {
  static const Setup setup{Variable("ENVPACK_TEST_STUB"), Variable("ENVPACK_TEST_LIBRARIES"),
                           Variable("ENVPACK_TEST_PYTHONPATH"), Variable("ENVPACK_TEST_SCRATCH")};
  return setup;
}

std::string WriteModel(const std::string& code) {
  static int number = 0;
  const fs::path version = fs::path(TheSetup().scratch) / ("model" + std::to_string(number++)) / "1";
  fs::create_directories(version);
  if (!code.empty()) std::ofstream(version / "model.py") << code;
  return version / "model.py";
}

StubProcess::StubProcess(Peer& peer, const std::string& model_file, const Options& options) {
  const Setup& setup = TheSetup();
  const fs::path backend = fs::path(setup.scratch) / "backend";
  fs::create_directories(backend);
  std::ofstream(backend / "triton_python_backend_utils.py") << kUtilities;
  output_ = fs::path(model_file).parent_path() / "output";
  std::vector<std::string> arguments{
      options.stub.empty() ? setup.stub : options.stub,
      model_file,
      peer.region.name(),
      "1048576",
      options.growth,
      std::to_string(getpid()),
      options.backend.empty() ? backend.string() : options.backend,
      std::to_string(peer.control),
      "model_0_0",
  };
  const int count = options.arguments != 0 ? options.arguments : peer.layouts.Arguments();
  if (count > 8) arguments.push_back(peer.layouts.release() < 2310 ? "NONE" : "DEFAULT");
  const std::string& packages = options.packages.empty() ? setup.python_path : options.packages;
  std::vector<std::string> environment{"PYTHONPATH=" + packages, "PYTHONDONTWRITEBYTECODE=1"};
  for (const std::string& variable : options.variables) environment.push_back(variable);
  const auto sets_log = [](const std::string& variable) {
    return variable.rfind("ENVPACK_LOG_FAILURES=", 0) == 0;
  };
  // A shell between, as in qemu, takes the last of two.
  if (std::none_of(environment.begin(), environment.end(), sets_log)) {
    environment.push_back("ENVPACK_LOG_FAILURES=0");
  }
  if (options.sets_release) environment.push_back("ENVPACK_TRITON_RELEASE=" + peer.layouts.Name());
  if (options.with_libpython) {
    const std::string cuda = options.with_gpu ? ":" + Variable("ENVPACK_TEST_CUDA") : "";
    const std::string& path = options.library_path.empty() ? setup.libraries : options.library_path;
    environment.push_back("LD_LIBRARY_PATH=" + path + cuda);
    environment.push_back("PYTHONHOME=" + fs::path(setup.libraries).parent_path().string());
  } else {
    // The machine may have that libpython in a default folder; a broken one on LD_LIBRARY_PATH is found
    // first.
    const fs::path broken = fs::path(setup.scratch) / "broken";
    fs::create_directories(broken);
    std::ofstream(broken / Variable("ENVPACK_TEST_LIBPYTHON")) << "not a library";
    environment.push_back("LD_LIBRARY_PATH=" + broken.string());
  }
  for (const std::string name : {"ASAN_OPTIONS", "UBSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name.c_str())) environment.push_back(name + "=" + value);
  }
  pid_ = fork();
  if (pid_ == 0) {
    const int file = open(output_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    if (options.file_limit > 0) {
      const rlimit limit{static_cast<rlim_t>(options.file_limit), static_cast<rlim_t>(options.file_limit)};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (options.ignores_children) signal(SIGCHLD, SIG_IGN);
    Become(arguments, environment);
  }
}

StubProcess::~StubProcess() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

int StubProcess::Wait() {
  int status = 0;
  ended_ = Soon([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended_) throw Failed("the stub does not end");
  return StatusFrom(status);
}

bool StubProcess::Runs() { return !ended_ && kill(pid_, 0) == 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }

std::string StubProcess::Output() const {
  std::ostringstream text;
  text << std::ifstream(output_).rdbuf();
  return text.str();
}

int StatusOf(const std::string& program) {
  const pid_t child = fork();
  if (child == 0) Become({program}, {});
  int status = 0;
  waitpid(child, &status, 0);
  return StatusFrom(status);
}

}  // namespace envpack::test
