// Models that end their process while the server waits for the completed configuration.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "check.h"
#include "running_stub.h"

using namespace envpack::test;

namespace {

std::string Completing(const std::string& line) {
  return "import ctypes, os, signal, subprocess, sys, time\n"
         "class TritonPythonModel:\n"
         "    @staticmethod\n"
         "    def auto_complete_config(config):\n"
         "        " +
         line + "\n        return config\n";
}

// The error that the server gets for a model with this code.
std::string ErrorOf(const std::string& code) {
  RunningStub running(code);
  running.peer.SendAutoComplete("{}");
  std::string config;
  const auto error = running.peer.TakeAutoComplete(&config);
  CHECK_EQ(running.stub.Wait(), 0);
  return error.value_or("");
}

}  // namespace

CASE(stub_reports_how_a_model_ended_its_process_while_it_was_imported) {
  CHECK_HAS(ErrorOf("import os\nos._exit(3)\n"),
            "The model's process exited with status 3 while the model was being imported.");
  CHECK_HAS(
      ErrorOf("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"),
      "was killed by signal 9 (SIGKILL, which the kernel sends when memory runs out) while the model was");
}

CASE(stub_reports_how_a_model_ended_its_process_while_it_completed) {
  CHECK_HAS(ErrorOf(Completing("os._exit(0)")),
            "exited with status 0 while auto_complete_config() was running");
  CHECK_HAS(
      ErrorOf(Completing("ctypes.string_at(0)")),
      "was killed by signal 11 (SIGSEGV) at model.py:5 in auto_complete_config while auto_complete_config()");
  CHECK_HAS(ErrorOf(Completing("os.kill(os.getpid(), signal.SIGABRT)")),
            "was killed by signal 6 (SIGABRT) at model.py:5");
  CHECK_HAS(ErrorOf(Completing("os.kill(os.getpid(), signal.SIGRTMIN)")), "was killed by signal 34 while");
}

CASE(stub_uses_a_configuration_although_the_model_then_dies_at_exit) {
  RunningStub running("import atexit, os\natexit.register(os._exit, 9)\n" + Completing("pass"));
  running.peer.SendAutoComplete(R"({"name": "model"})");
  std::string config;
  CHECK(!running.peer.TakeAutoComplete(&config));
  CHECK_EQ(config, R"({"name": "model"})");
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
  CHECK_EQ(running.stub.Wait(), 0);
}

// Larger than any pipe and than the region. A process of the model outlives the model.
CASE(stub_sends_a_large_configuration_while_a_grandchild_lives) {
  RunningStub running(
      Completing("config._model_config['text'] = 'x' * 5000000; pid = os.fork(); "
                 "pid or (time.sleep(60), os._exit(0)); open(__file__ + '.pid', 'w').write(str(pid))"));
  running.peer.SendAutoComplete("{}");
  std::string config;
  CHECK(!running.peer.TakeAutoComplete(&config));
  CHECK_EQ(config, "{\"text\": \"" + std::string(5000000, 'x') + "\"}");
  pid_t grandchild = 0;
  std::ifstream(running.model + ".pid") >> grandchild;
  CHECK(grandchild > 0);
  kill(grandchild, SIGKILL);
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
  CHECK_EQ(running.stub.Wait(), 0);
}

CASE(stub_beats_while_its_child_completes_and_kills_it_when_killed) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  RunningStub running(Completing("open(__file__ + '.pid', 'w').write(str(os.getpid())); time.sleep(60)"));
  running.peer.SendAutoComplete("{}");
  pid_t child = 0;
  CHECK(Soon([&] { return static_cast<bool>(std::ifstream(running.model + ".pid") >> child); }));
  CHECK(child > 0 && child != running.stub.pid());
  CHECK(running.peer.BeatsAgain());
  kill(running.stub.pid(), SIGKILL);
  CHECK_EQ(running.stub.Wait(), 128 + SIGKILL);
  int status = 0;
  CHECK(Soon([&] { return waitpid(child, &status, WNOHANG) == child; }));
  CHECK(WIFSIGNALED(status));
  CHECK_EQ(WTERMSIG(status), SIGKILL);
}
