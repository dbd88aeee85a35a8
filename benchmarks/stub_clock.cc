// Acts as the server for one stub, and measures the time from the start of the process to its first message
// and to its response to initialize.
//
//   stub_clock STUB MODEL_FILE BACKEND_FOLDER
//
// The stub inherits the environment variables. Prints two durations in seconds.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "check.h"
#include "peer.h"

namespace envpack::test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kRegion = 1 << 20;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

pid_t Spawn(std::vector<std::string> arguments) {
  const pid_t child = fork();
  if (child != 0) return child;
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

std::map<std::string, std::string> InitializeArguments() {
  return {{"model_config", "{}"},
          {"model_instance_kind", "CPU"},
          {"model_instance_name", "model_0_0"},
          {"model_instance_device_id", "0"},
          {"model_repository", ""},
          {"model_version", "1"},
          {"model_name", "model"}};
}

void Measure(const char* const* argv) {
  Peer::Options options;
  options.size = kRegion;
  Peer peer(options);
  peer.region.As<records::Control>(peer.control)->uses_env = true;
  setenv("ENVPACK_TRITON_RELEASE", peer.layouts.Name().c_str(), 1);
  const Clock::time_point start = Clock::now();
  const pid_t stub =
      Spawn({argv[1], argv[2], peer.region.name(), "1048576", "1048576", std::to_string(getpid()), argv[3],
             std::to_string(peer.control), "model_0_0", "DEFAULT"});
  peer.TakeStartupMessage();
  const double announced = Since(start);
  peer.SendInitialize(InitializeArguments());
  if (const auto error = peer.TakeInitialize()) throw Failed(*error);
  const double initialized = Since(start);
  // This program does not read the stub's log messages, so the stub would wait forever.
  kill(stub, SIGKILL);
  waitpid(stub, nullptr, 0);
  std::printf("%.9f %.9f\n", announced, initialized);
}

}  // namespace

}  // namespace envpack::test

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: stub_clock STUB MODEL_FILE BACKEND_FOLDER\n");
    return 2;
  }
  try {
    envpack::test::Measure(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stub_clock: %s\n", error.what());
    return 1;
  }
}
