// Workers that die, with the server of each release: everything that the server waits for is answered, and
// the next worker serves.
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "check.h"
#include "running_stub.h"

using namespace envpack::test;

namespace {

constexpr char kInfer[] =
    "bls = pb_utils.InferenceRequest(request_id='id', inputs=request.inputs(), model_name='other', "
    "requested_output_names=['OUT'])\n";

constexpr std::uint64_t kStream = 42;

pid_t WorkerOf(const StubProcess& stub) {
  const std::string pid = std::to_string(stub.pid());
  std::ifstream file("/proc/" + pid + "/task/" + pid + "/children");
  pid_t worker = 0;
  file >> worker;
  return worker;
}

int ValueOf(sem_t* semaphore) {
  int value = 0;
  sem_getvalue(semaphore, &value);
  return value;
}

// Whether all threads of a process are in a state, as ps prints it: S waits for something, T is stopped.
bool AllAre(char state, pid_t process) {
  namespace fs = std::filesystem;
  std::error_code error;  // a process may end meanwhile
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(process) + "/task", error)) {
    std::ifstream file(thread.path() / "stat");
    std::string text;
    std::getline(file, text);
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string::npos || text.at(name_end + 2) != state) return false;
  }
  return !error;
}

StubProcess::Options With(std::vector<std::string> variables, bool is_decoupled) {
  StubProcess::Options options;
  options.variables = std::move(variables);
  if (is_decoupled) options.variables.push_back("decoupled=1");
  return options;
}

Peer::Options OfDecoupled(bool is_decoupled) {
  Peer::Options options;
  options.decoupled = is_decoupled;
  return options;
}

struct Restarting : RunningStub {
  explicit Restarting(bool is_decoupled = false, std::vector<std::string> variables = {})
      : RunningStub(ScriptModel(), With(std::move(variables), is_decoupled), OfDecoupled(is_decoupled)),
        is_decoupled(is_decoupled) {
    CHECK(!Initialize());
    SkipReport();
    free = peer.region.FreeBytes();
  }

  pid_t Worker() const { return WorkerOf(stub); }
  static bool HasGone(pid_t worker) { return kill(worker, 0) != 0; }

  void Send(const std::string& code) {
    PeerRequest request = RequestOf(code, kTwoFloats);
    request.response_factory = 101;
    request.address = 102;
    peer.SendExecute({request});
  }
  std::string Error() {
    const auto answer = peer.TakeExecute();
    peer.Drop();
    return answer.error.value_or("");
  }
  // A stub deletes the factories of failed requests itself in some releases.
  void SkipFactory() {
    const int release = peer.layouts.release();
    if (release >= 2312 && release < 2410) CHECK_EQ(peer.TakeFactoryCleanup(), 101);
  }

  // The new worker tells that it is one, and answers the next request.
  void CheckThatTheNextOneServes(const std::string& cause) {
    bool is_told = false, has_described = false;
    int metrics = peer.layouts.release() >= 2305 ? 3 : 0;
    while (!is_told || !has_described || has_old_stream || metrics > 0) {
      if (peer.NextRequestIs("LogRequest")) {
        const std::string line = peer.TakeLog().message;
        has_described = has_described || line.find("envpack-stub {") != std::string::npos;
        if (line.find("was restarted (1, process ") == std::string::npos) continue;
        CHECK_HAS(line, cause);
        is_told = true;
      } else if (peer.NextRequestIs("StreamCleanup")) {
        CHECK_EQ(peer.TakeStreamCleanup(), kStream);
        has_old_stream = false;
      } else {
        const char* const commands[] = {"MetricFamilyRequestNew", "MetricRequestNew",
                                        "MetricRequestIncrement"};
        const auto metric = peer.TakeMetrics(commands[3 - metrics]);
        if (metrics == 3) CHECK_EQ(metric.name, "envpack_restarts_total");
        if (metrics == 2) CHECK_EQ(metric.labels, R"({"model": "model", "version": ""})");
        --metrics;
      }
    }
    CHECK(Soon([&] { return peer.region.FreeBytes() + 96 >= free; }));
    Send("answer = 6 * 7");
    const auto answer = peer.TakeExecute();
    peer.Drop();
    if (is_decoupled) {  // the model has not used the sender
      CHECK_HAS(answer.error.value_or(""), "nothing can answer any more");
      SkipFactory();
    } else {
      CHECK_EQ(answer.error.value_or(""), "");
      CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes, "42");
    }
    CHECK(peer.TakeFinalize(peer.SendFinalize()));
    CHECK_EQ(stub.Wait(), 0);
  }

  const bool is_decoupled;
  bool has_old_stream = false;  // which the next worker must end
  std::uint64_t free = 0;
};

}  // namespace

CASE(restart_after_an_exit_in_execute) {
  Restarting running;
  const pid_t worker = running.Worker();
  running.Send("os._exit(3)");
  CHECK_HAS(running.Error(), "the model's process " + std::to_string(worker) + " exited with status 3");
  running.SkipFactory();
  running.CheckThatTheNextOneServes("exited with status 3");
}

CASE(restart_after_a_death_before_it_has_read_its_requests) {
  Restarting running;
  const pid_t worker = running.Worker();
  running.Send("answer = 1");  // from now on its parent leaves the region alone
  CHECK_EQ(running.Error(), "");
  CHECK(Soon([&] { return AllAre('S', worker); }));
  kill(worker, SIGSTOP);
  CHECK(Soon([&] { return AllAre('T', worker); }));
  running.Send("answer = 2");
  auto* commands = running.peer.region.As<sem_t>(running.peer.to_stub_commands.handle(), sizeof(sem_t));
  pthread_mutex_lock(running.peer.region.mutex());
  kill(worker, SIGCONT);
  const bool has_taken = Soon([&] { return ValueOf(commands) == 0 && AllAre('S', worker); });
  kill(worker, SIGKILL);
  const bool has_died = Soon([&] { return Restarting::HasGone(worker); });
  pthread_mutex_unlock(running.peer.region.mutex());
  CHECK(has_taken && has_died);
  CHECK_HAS(running.Error(), "was killed by signal 9");
  running.SkipFactory();
  running.CheckThatTheNextOneServes("was killed by signal 9");
}

CASE(restart_after_a_death_between_requests) {
  Restarting running;
  kill(running.Worker(), SIGKILL);
  running.CheckThatTheNextOneServes("was killed by signal 9 (SIGKILL");
}

CASE(restart_after_a_death_before_the_server_has_read_a_log_line) {
  Restarting running;
  const pid_t worker = running.Worker();
  running.Send(
      "pb_utils.Logger.log_info('first')\npb_utils.Logger.log_info('second')\nthreading.Event().wait()");
  CHECK(running.peer.NextRequestIs("LogRequest"));
  kill(worker, SIGKILL);
  CHECK(Soon([&] { return Restarting::HasGone(worker); }));
  CHECK_EQ(running.peer.TakeLog().message, "first");
  CHECK_HAS(running.Error(), "was killed by signal 9");
  running.SkipFactory();
  running.CheckThatTheNextOneServes("was killed by signal 9");
}

CASE(restart_after_a_death_before_another_model_has_answered) {
  for (const bool decoupled : {false, true}) {
    Restarting running;
    const pid_t worker = running.Worker();
    running.Send(std::string(kInfer) + (decoupled ? "bls.exec(decoupled=True)" : "bls.exec()"));
    CHECK(running.peer.AwaitsInfer());
    kill(worker, SIGKILL);
    CHECK(Soon([&] { return Restarting::HasGone(worker); }));
    PeerResponse response;
    response.outputs = {{"OUT", 11, {1}, Floats({7})}};
    response.stream = decoupled ? kStream : 0;
    response.is_last = !decoupled;
    CHECK_EQ(running.peer.ServeInfer(response).model, "other");
    CHECK_HAS(running.Error(), "was killed by signal 9");
    running.SkipFactory();
    if (decoupled) {
      response.is_last = true;
      running.peer.SendStreamResponse(response);
      running.peer.Drop();
      running.has_old_stream = true;
    }
    running.CheckThatTheNextOneServes("was killed by signal 9");
  }
}

CASE(a_death_while_a_model_is_finalized_ends_the_stub) {
  RunningStub running(
      "import os\nimport threading\nimport triton_python_backend_utils as pb_utils\n"
      "class TritonPythonModel:\n"
      "    def execute(self, requests):\n"
      "        bls = pb_utils.InferenceRequest(request_id='id', inputs=requests[0].inputs(), "
      "model_name='other',\n"
      "                                        requested_output_names=['OUT'])\n"
      "        self.stream = bls.exec(decoupled=True)\n"
      "        return [pb_utils.InferenceResponse([])]\n");
  CHECK(!running.Initialize());
  running.SkipReport();
  running.peer.SendExecute({RequestOf("", kTwoFloats)});
  PeerResponse response;
  response.stream = kStream;
  response.is_last = false;
  running.peer.ServeInfer(response);
  CHECK_EQ(running.peer.TakeExecute().error.value_or(""), "");
  const pid_t worker = WorkerOf(running.stub);
  const Handle finalize = running.peer.SendFinalize();
  CHECK(Soon([&] { return running.peer.region.References(finalize) > 1; }));  // it waits for the stream's end
  kill(worker, SIGKILL);
  CHECK(running.peer.TakeFinalize(finalize));
  CHECK_EQ(running.stub.Wait(), 128 + SIGKILL);
}

CASE(restart_ends_the_requests_of_a_decoupled_model) {
  Restarting running(true);
  running.Send(
      "sender = request.get_response_sender()\nkept[0] = sender\n"
      "sender.send(pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1, "
      "dtype=np.int8))]))\nos._exit(3)");
  CHECK_EQ(running.peer.TakeSent().flags, 0u);
  CHECK_HAS(running.Error(), "exited with status 3");
  running.SkipFactory();
  running.CheckThatTheNextOneServes("exited with status 3");
}

CASE(restart_ends_the_requests_that_a_decoupled_model_has_kept) {
  Restarting running(true);
  running.Send("kept[0] = request.get_response_sender()");
  CHECK_EQ(running.Error(), "");
  kill(running.Worker(), SIGKILL);
  const SentResponse sent = running.peer.TakeSent();
  CHECK_HAS(sent.response.value().error.value_or(""), "was killed by signal 9");
  CHECK_EQ(sent.flags, 1u);
  CHECK_EQ(sent.request, 102);
  running.SkipFactory();
  running.CheckThatTheNextOneServes("was killed by signal 9");
}

// The server can unload a model only if none of its requests has found a dead stub.
CASE(restart_that_is_given_up_leaves_a_stub_that_refuses_requests) {
  for (const bool is_decoupled : {false, true}) {
    Restarting running(is_decoupled, {"ENVPACK_RESTARTS=0"});
    running.Send("os._exit(3)");
    CHECK_HAS(running.Error(), "message: the model's process ");
    running.SkipFactory();
    running.Send("answer = 1");
    CHECK_HAS(running.Error(), "message: it is not restarted any more: the model's process ");
    running.SkipFactory();
    CHECK(Soon([&] { return running.peer.region.FreeBytes() + 96 >= running.free; }));
    CHECK(running.peer.BeatsAgain());
    CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
    CHECK_EQ(running.stub.Wait(), 3);
    CHECK_HAS(running.stub.Output(), "is not restarted any more: the model's process ");
  }
}

// Otherwise the server's thread waits for the stub, and the model that streams cannot be unloaded either.
CASE(a_stub_that_refuses_requests_lets_another_model_go_on_streaming) {
  Restarting running(false, {"ENVPACK_RESTARTS=0"});
  if (running.peer.layouts.release() < 2305) return;  // a stub cannot put that right
  const pid_t worker = running.Worker();
  running.Send(std::string(kInfer) + "bls.exec(decoupled=True)");
  CHECK(running.peer.AwaitsInfer());
  kill(worker, SIGKILL);
  CHECK(Soon([&] { return Restarting::HasGone(worker); }));
  PeerResponse response;
  response.stream = kStream;
  response.is_last = false;
  CHECK_EQ(running.peer.ServeInfer(response).model, "other");
  CHECK_HAS(running.Error(), "was killed by signal 9");
  running.SkipFactory();
  for (const bool is_last : {false, true}) {
    response.is_last = is_last;
    running.peer.SendStreamResponse(response);
    running.peer.Drop();
  }
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
}

// What a program ignores, those that it starts ignore too; then nobody can wait for a child.
CASE(restart_needs_no_server_that_waits_for_its_children) {
  StubProcess::Options options;
  options.ignores_children = true;
  RunningStub running(ScriptModel(), options, Peer::Options{});
  CHECK(!running.Initialize());
  running.SkipReport();
  running.peer.SendExecute(
      {RequestOf("import signal\nanswer = int(signal.getsignal(signal.SIGCHLD))", kTwoFloats)});
  CHECK_EQ(running.peer.TakeExecute().responses.at(0).outputs.at(0).bytes, "1");  // as the server has set it
  running.peer.SendExecute({RequestOf("os._exit(3)", kTwoFloats)});
  CHECK_HAS(running.peer.TakeExecute().error.value_or(""), "exited with status 3");
}

CASE(restart_settings_that_cannot_be_read_are_told) {
  for (const char* setting :
       {"ENVPACK_RESTARTS=often", "ENVPACK_EXECUTE_TIMEOUT=-1", "ENVPACK_EXECUTE_TIMEOUT=x"}) {
    StubProcess::Options options;
    options.variables = {setting};
    RunningStub running(ScriptModel(), options, Peer::Options{});
    const std::string variable(setting, std::string(setting).find('='));
    CHECK_HAS(running.Initialize().value_or(""), variable + " is not a number");
    CHECK_EQ(running.stub.Wait(), 1);
  }
}

CASE(restart_after_an_execute_that_takes_too_long) {
  StubProcess::Options options;
  options.variables = {"ENVPACK_EXECUTE_TIMEOUT=0.2"};
  RunningStub running(ScriptModel(), options, Peer::Options{});
  CHECK(!running.Initialize());
  running.SkipReport();
  running.peer.SendExecute({RequestOf("threading.Event().wait()", kTwoFloats)});
  CHECK_HAS(running.peer.TakeExecute().error.value_or(""), "execute() did not return within the 0.2 seconds");
  CHECK_HAS(running.stub.Output(), "in wait\n");
}

CASE(a_crash_while_a_model_starts_is_its_load_error) {
  RunningStub running("import ctypes\nctypes.string_at(0)\n");
  CHECK_HAS(running.Initialize().value_or(""),
            "was killed by signal 11 (SIGSEGV) at model.py:2 in <module> while");
  CHECK_EQ(running.stub.Wait(), 128 + SIGSEGV);
}
