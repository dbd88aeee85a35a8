// Models that end their own process while the server waits for the completed configuration.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "check.h"
#include "started.h"

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

// The error that the server gets from a model that is this code.
std::string ErrorOf(const std::string& code) {
  Started started(code);
  started.peer.SendAutoComplete("{}");
  std::string config;
  const auto error = started.peer.TakeAutoComplete(&config);
  CHECK_EQ(started.stub.Wait(), 0);
  return error.value_or("");
}

}  // namespace

CASE(stub_tells_how_a_model_ended_its_process_while_it_was_imported) {
  CHECK_HAS(ErrorOf("import os\nos._exit(3)\n"),
            "The model's process ended itself with exit status 3 while the model was being imported.");
  CHECK_HAS(ErrorOf("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"),
            "was ended by signal 9 (SIGKILL, as the kernel sends when memory runs out) while the model was");
}

CASE(stub_tells_how_a_model_ended_its_process_while_it_completed) {
  CHECK_HAS(ErrorOf(Completing("os._exit(0)")),
            "ended itself with exit status 0 while auto_complete_config() was running");
  CHECK_HAS(ErrorOf(Completing("ctypes.string_at(0)")),
            "was ended by signal 11 (SIGSEGV) while auto_complete_config() was running");
  CHECK_HAS(ErrorOf(Completing("os.kill(os.getpid(), signal.SIGABRT)")), "was ended by signal 6 (SIGABRT)");
  CHECK_HAS(ErrorOf(Completing("os.kill(os.getpid(), signal.SIGRTMIN)")), "was ended by signal 34 while");
}

CASE(stub_takes_a_configuration_though_the_model_then_dies_at_its_exit) {
  Started started("import atexit, os\natexit.register(os._exit, 9)\n" + Completing("pass"));
  started.peer.SendAutoComplete(R"({"name": "model"})");
  std::string config;
  CHECK(!started.peer.TakeAutoComplete(&config));
  CHECK_EQ(config, R"({"name": "model"})");
  CHECK(started.peer.TakeFinalize(started.peer.SendFinalize()));
  CHECK_EQ(started.stub.Wait(), 0);
}

// Larger than any pipe, and than the region; a process of the model's own outlives the model.
CASE(stub_hands_over_a_large_configuration_while_a_grandchild_lives_on) {
  Started started(
      Completing("config._model_config['text'] = 'x' * 5000000; pid = os.fork(); "
                 "pid or (time.sleep(60), os._exit(0)); open(__file__ + '.pid', 'w').write(str(pid))"));
  started.peer.SendAutoComplete("{}");
  std::string config;
  CHECK(!started.peer.TakeAutoComplete(&config));
  CHECK_EQ(config, "{\"text\": \"" + std::string(5000000, 'x') + "\"}");
  pid_t grandchild = 0;
  std::ifstream(started.model + ".pid") >> grandchild;
  CHECK(grandchild > 0);
  kill(grandchild, SIGKILL);
  CHECK(started.peer.TakeFinalize(started.peer.SendFinalize()));
  CHECK_EQ(started.stub.Wait(), 0);
}

CASE(stub_beats_while_its_child_completes_and_takes_it_along_when_it_is_killed) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Started started(Completing("open(__file__ + '.pid', 'w').write(str(os.getpid())); time.sleep(60)"));
  started.peer.SendAutoComplete("{}");
  pid_t child = 0;
  for (int i = 0; i < 1000 && child == 0; ++i) {
    usleep(10000);
    std::ifstream(started.model + ".pid") >> child;
  }
  CHECK(child > 0 && child != started.stub.pid());
  CHECK(started.peer.BeatsAgain());
  kill(started.stub.pid(), SIGKILL);
  CHECK_EQ(started.stub.Wait(), 128 + SIGKILL);
  int status = 0;
  for (int i = 0; i < 1000 && waitpid(child, &status, WNOHANG) != child; ++i) usleep(10000);
  CHECK(WIFSIGNALED(status));
  CHECK_EQ(WTERMSIG(status), SIGKILL);
}
