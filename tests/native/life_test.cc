// How the real stub starts and ends, with this process as its server.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "check.h"
#include "started.h"

using namespace envpack::test;
namespace fs = std::filesystem;

CASE(stub_dry_run_exits_1_with_an_empty_environment) { CHECK_EQ(StatusOf(TheSetup().stub), 1); }

CASE(stub_says_hello_and_beats) {
  Started started(kModel);
  CHECK(started.peer.BeatsAgain());
  CHECK(started.peer.BeatsAgain());
  CHECK(!started.peer.from_stub_answers.TryPop(0));
}

CASE(stub_completes_a_configuration_and_finalizes) {
  Started started(kModel);
  started.peer.SendAutoComplete(R"({"name": "größe"})");
  std::string config;
  CHECK(!started.peer.TakeAutoComplete(&config));
  CHECK_EQ(config, R"({"name": "gr\u00f6\u00dfe", "max_batch_size": 4})");
  CHECK(!started.peer.from_stub_requests.TryPop(0));
  CHECK(started.peer.TakeFinalize(started.peer.SendFinalize()));
  CHECK_EQ(started.stub.Wait(), 0);
}

CASE(stub_tells_why_it_cannot_complete_and_ends) {
  Started started("raise RuntimeError('at import')\n");
  started.peer.SendAutoComplete("{}");
  std::string config;
  CHECK_HAS(started.peer.TakeAutoComplete(&config).value_or(""), "RuntimeError: at import");
  CHECK_EQ(started.stub.Wait(), 0);
}

CASE(stub_gets_the_arguments_of_initialize) {
  Started started(kModel);
  CHECK(!started.Initialize());
  const auto answer = started.Execute({Ask("args", kTwoFloats)});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK(answer.responses.at(0).outputs.at(0).bytes == std::string("\5\0\0\0model\1\0\0\0"
                                                                  "2",
                                                                  14));
}

CASE(stub_tells_why_it_cannot_initialize_and_ends_at_once) {
  Started started(
      "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('boom')\n");
  CHECK_HAS(started.Initialize().value_or(""), "ValueError: boom\n\nAt:\n");
  CHECK_EQ(started.stub.Wait(), 0);
  CHECK(started.peer.region.NameExists());
}

CASE(stub_does_not_wait_for_threads_that_the_model_left) {
  Started started(
      "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
      "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n");
  CHECK(!started.Initialize());
  started.SkipReport();
  CHECK(started.peer.TakeFinalize(started.peer.SendFinalize()));
  CHECK_EQ(started.stub.Wait(), 0);
}

CASE(stub_finalizes_after_it_has_answered) {
  Started started(kModel);
  CHECK(!started.Initialize());
  started.SkipReport();
  CHECK(started.peer.TakeFinalize(started.peer.SendFinalize()));
  CHECK_EQ(started.stub.Wait(), 0);
  CHECK_EQ(access((started.model.substr(0, started.model.size() - 8) + "finalized").c_str(), F_OK), 0);
  CHECK(started.peer.region.NameExists());
}

CASE(stub_survives_the_signals_of_a_terminal) {
  Started started(kModel);
  CHECK(!started.Initialize());
  for (int i = 0; i < 20; ++i) {
    kill(started.stub.pid(), i % 2 == 0 ? SIGINT : SIGTERM);
    usleep(2000);
  }
  CHECK(!started.Execute({Ask("", kTwoFloats)}).error);
}

CASE(stub_ignores_a_command_that_it_does_not_know) {
  Started started(kModel);
  started.peer.SendCommand(99);
  CHECK(!started.Initialize());
}

CASE(stub_without_libpython_says_so_through_the_server) {
  StubProcess::Options options;
  options.with_libpython = false;
  for (const bool complete : {true, false}) {
    Started started(kModel, options, Peer::Options{});
    CHECK(started.peer.BeatsAgain());
    std::string config;
    if (complete) started.peer.SendAutoComplete("{}");
    const auto error = complete ? started.peer.TakeAutoComplete(&config) : started.Initialize();
    CHECK_HAS(error.value_or(""), "this stub needs libpython3.");
    CHECK_HAS(error.value_or(""), "The model's execution environment must hold Python 3.");
    CHECK_HAS(started.stub.Output(), "envpack stub: this stub needs libpython3.");
    CHECK_EQ(started.stub.Wait(), 1);
  }
}

CASE(stub_without_a_model_file_says_so_through_the_server) {
  Started started("");
  CHECK_HAS(started.Initialize().value_or(""), "Python model file not found in '" + started.model + "'");
  CHECK_EQ(started.stub.Wait(), 0);
}

// What the stub says of a NumPy whose own library cannot be loaded, and that gives advice about it instead.
std::string ToldOfNumpy(const std::string& raised) {
  StubProcess::Options options;
  options.packages = TheSetup().scratch + "/packages";
  fs::create_directories(options.packages);
  std::ofstream(options.packages + "/numpy.py")
      << "try:\n    raise OSError('no libblas.so.3')\n"
         "except OSError as error:\n    raise ImportError('reinstall') "
      << raised;
  Started started(kModel, options, Peer::Options{});
  const std::string told = started.Initialize().value_or("");
  CHECK_EQ(started.stub.Wait(), 0);
  return told.substr(0, told.find('\n'));
}

CASE(stub_tells_what_numpy_lacks_as_far_as_numpy_does) {
  CHECK_HAS(ToldOfNumpy(""), "OSError: no libblas.so.3");
  CHECK_HAS(ToldOfNumpy("from error"), "OSError: no libblas.so.3");
  CHECK_HAS(ToldOfNumpy("from None"), "ImportError: reinstall");
}

CASE(stub_without_its_region_ends_with_a_reason) {
  Peer peer;
  const std::string model = WriteModel(kModel);
  peer.region.Unlink();
  StubProcess stub(peer, model);
  CHECK_EQ(stub.Wait(), 1);
  CHECK_HAS(stub.Output(), "cannot open shared memory region " + peer.region.name());
}

// A process between this one and the stub plays the server and is killed; it stays a zombie until the end.
CASE(stub_ends_and_removes_the_region_when_the_server_dies) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int pipes[2];
  CHECK_EQ(pipe(pipes), 0);
  const std::string model = WriteModel(kModel);
  const pid_t server = fork();
  if (server == 0) {
    Peer peer;
    StubProcess stub(peer, model);
    peer.TakeSign();
    peer.SendInitialize(kArguments);
    if (peer.TakeInitialize()) _exit(1);
    char told[128] = {};
    std::snprintf(told, sizeof(told), "%d %s", stub.pid(), peer.region.name().c_str());
    if (write(pipes[1], told, sizeof(told)) < 0) _exit(1);
    pause();
  }
  char told[128] = {};
  CHECK_EQ(read(pipes[0], told, sizeof(told)), static_cast<ssize_t>(sizeof(told)));
  const pid_t stub = std::atoi(told);
  const std::string region = std::string("/dev/shm/") + (std::strchr(told, ' ') + 1);
  CHECK_EQ(access(region.c_str(), F_OK), 0);
  kill(server, SIGKILL);
  int status = -1;
  for (int i = 0; i < 100 && waitpid(stub, &status, WNOHANG) != stub; ++i) usleep(20000);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 1);
  CHECK(access(region.c_str(), F_OK) != 0);
  waitpid(server, nullptr, 0);
  CHECK(access((model.substr(0, model.size() - 8) + "finalized").c_str(), F_OK) != 0);
}
