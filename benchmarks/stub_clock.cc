// Acts as the server for one stub, and measures the time from the start of the process to its first message
// and to its response to initialize, and the time of echoed requests.
//
//   stub_clock STUB MODEL_FILE BACKEND_FOLDER REQUESTS BYTES
//
// The stub inherits the environment variables. Prints three durations in seconds; the last is the median of
// the requests.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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

constexpr std::int32_t kFp32 = 11;
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

double OneRequest(Peer& peer, const PeerRequest& request) {
  const Clock::time_point start = Clock::now();
  peer.SendExecute({request});
  const ExecuteAnswer answer = peer.TakeExecute();
  const double seconds = Since(start);
  if (answer.error) throw Failed(*answer.error);
  CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes.size(), request.inputs[0].bytes.size());
  peer.Drop();
  return seconds;
}

double MedianOfRequests(Peer& peer, int count, std::size_t bytes) {
  if (count == 0) return 0;
  PeerRequest request;
  request.inputs.push_back(
      {"IN", kFp32, {1, 1, 1, static_cast<std::int64_t>(bytes / 4)}, std::string(bytes, '\1')});
  request.outputs.push_back("OUT");
  std::vector<double> durations;
  for (int i = 0; i < count; ++i) durations.push_back(OneRequest(peer, request));
  std::nth_element(durations.begin(), durations.begin() + count / 2, durations.end());
  return durations[static_cast<std::size_t>(count / 2)];
}

void Measure(const char* const* argv) {
  const int requests = std::atoi(argv[4]);
  const std::size_t bytes = std::strtoul(argv[5], nullptr, 10);
  // The peer does not grow its region by itself.
  Peer::Options options;
  options.size = kRegion + 8 * bytes;
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
  peer.Drop();
  const double request = MedianOfRequests(peer, requests, bytes);
  // This program does not read the stub's log messages, so the stub would wait forever.
  kill(stub, SIGKILL);
  waitpid(stub, nullptr, 0);
  std::printf("%.9f %.9f %.9f\n", announced, initialized, request);
}

}  // namespace

}  // namespace envpack::test

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: stub_clock STUB MODEL_FILE BACKEND_FOLDER REQUESTS BYTES\n");
    return 2;
  }
  try {
    envpack::test::Measure(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stub_clock: %s\n", error.what());
    return 1;
  }
}
