// The life of the real stub, with this process as its server.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "check.h"
#include "peer.h"
#include "stub_process.h"

using namespace envpack::test;

namespace {

constexpr char kModel[] = R"(
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config._model_config["max_batch_size"] = 4
        return config

    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        if tensor is None:
            raise ValueError("nothing to do")
        data = tensor.as_numpy()
        if request.request_id() == "error":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("asked for", pb_utils.TritonError.NOT_FOUND))
        if request.request_id() == "large":
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full(5000000, 1.5, dtype=np.float32))])
        if request.request_id() == "log":
            pb_utils.Logger.log_warn("from the model")
        if request.request_id() == "args":
            data = np.array([self.args["model_name"], str(len(self.args))], dtype=object)
        elif data.dtype == object:
            data = np.array([element + b"!" for element in data.ravel()], dtype=object).reshape(data.shape)
        else:
            data = data * 2
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", data), pb_utils.Tensor("MORE", data)])

    def finalize(self):
        with open(os.path.join(pb_utils.get_model_dir(), "finalized"), "w") as file:
            file.write("yes")
)";

const std::map<std::string, std::string> kArguments{{"model_config", "{}"}, {"model_name", "model"}};

std::string Floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

PeerRequest Ask(const std::string& id, const PeerTensor& tensor) {
  PeerRequest request;
  request.inputs = {tensor};
  request.id = id;
  return request;
}

const PeerTensor kTwoFloats{"IN", 11, {2}, Floats({1.5, -2.0})};

// A stub that has said hello.
struct Started {
  explicit Started(const std::string& code) : Started(code, StubProcess::Options{}, Peer::Options{}) {}
  Started(const std::string& code, const StubProcess::Options& options, const Peer::Options& peer_options)
      : peer(peer_options), model(WriteModel(code)), stub(peer, model, options) {
    peer.from_stub_answers.Pop();
  }

  std::optional<std::string> Initialize() {
    peer.SendInitialize(kArguments);
    auto error = peer.TakeInitialize();
    peer.Drop();
    return error;
  }
  ExecuteAnswer Execute(const std::vector<PeerRequest>& requests) {
    peer.SendExecute(requests);
    auto answer = peer.TakeExecute();
    peer.Drop();
    return answer;
  }
  // The stub's last line of its own, which says what runs, comes before anything that the model logs.
  void SkipReport() { CHECK_HAS(peer.TakeLog().message, "envpack-stub {"); }

  Peer peer;
  std::string model;
  StubProcess stub;
};

}  // namespace

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

CASE(stub_multiplies_floats) {
  Started started(kModel);
  CHECK(!started.Initialize());
  const auto answer = started.Execute({Ask("", kTwoFloats), Ask("", {"IN", 11, {1, 1}, Floats({4})})});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK_EQ(answer.responses.size(), 2u);
  const PeerTensor& first = answer.responses[0].outputs.at(0);
  CHECK_EQ(first.name, "OUT");
  CHECK_EQ(first.dtype, 11);
  CHECK((first.dims == std::vector<std::int64_t>{2}));
  CHECK(first.bytes == Floats({3.0, -4.0}));
  CHECK((answer.responses[1].outputs.at(0).dims == std::vector<std::int64_t>{1, 1}));
  CHECK(answer.responses[1].outputs.at(0).bytes == Floats({8}));
}

CASE(stub_reads_and_writes_bytes) {
  Started started(kModel);
  CHECK(!started.Initialize());
  const std::string sent("\3\0\0\0a\0b\0\0\0\0", 11);
  const auto answer = started.Execute({Ask("", {"IN", 13, {1, 2}, sent})});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK(answer.responses.at(0).outputs.at(0).bytes == std::string("\4\0\0\0a\0b!\1\0\0\0!", 13));
  for (const std::string& broken : {sent.substr(0, 10), sent + "x", std::string("\xff\xff\xff\xff", 4)}) {
    CHECK_HAS(started.Execute({Ask("", {"IN", 13, {1, 2}, broken})}).error.value_or(""), "bytes tensor");
  }
}

CASE(stub_passes_empty_tensors) {
  Started started(kModel);
  CHECK(!started.Initialize());
  for (const std::int32_t dtype : {11, 13}) {
    const auto answer = started.Execute({Ask("", {"IN", dtype, {0, 3}, ""})});
    CHECK_EQ(answer.error.value_or(""), "");
    CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes.size(), 0u);
    CHECK((answer.responses[0].outputs[0].dims == std::vector<std::int64_t>{0, 3}));
  }
}

CASE(stub_reads_a_tensor_whose_memory_is_apart) {
  Started started(kModel);
  CHECK(!started.Initialize());
  const auto answer = started.Execute({Ask("", {"IN", 11, {2}, Floats({1, 2}), true})});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK(answer.responses.at(0).outputs.at(0).bytes == Floats({2, 4}));
}

CASE(stub_sends_only_the_outputs_asked_for) {
  Started started(kModel);
  CHECK(!started.Initialize());
  PeerRequest request = Ask("", kTwoFloats);
  request.outputs = {"MORE", "UNKNOWN"};
  const auto answer = started.Execute({request});
  CHECK_EQ(answer.responses.at(0).outputs.size(), 1u);
  CHECK_EQ(answer.responses[0].outputs[0].name, "MORE");
}

CASE(stub_fails_one_request_of_a_batch) {
  Started started(kModel);
  CHECK(!started.Initialize());
  const auto answer = started.Execute({Ask("error", kTwoFloats), Ask("", kTwoFloats)});
  CHECK(!answer.error);
  CHECK_EQ(answer.responses.at(0).error.value_or(""), "asked for");
  CHECK_EQ(answer.responses[0].code, 2);
  CHECK(!answer.responses.at(1).error);
}

CASE(stub_tells_an_exception_and_goes_on) {
  Started started(kModel);
  CHECK(!started.Initialize());
  const auto answer = started.Execute({Ask("", {"WRONG", 11, {1}, Floats({1})})});
  CHECK_HAS(answer.error.value_or(""),
            "Failed to process the request(s) for model 'model_0_0', message: ValueError: nothing to do");
  CHECK(answer.responses.empty());
  CHECK(!started.Execute({Ask("", kTwoFloats)}).error);
}

CASE(stub_answers_an_empty_batch) {
  Started started(kModel);
  CHECK(!started.Initialize());
  const auto answer = started.Execute({});
  CHECK(!answer.error);
  CHECK(answer.responses.empty());
}

CASE(stub_gives_all_memory_back) {
  Started started(kModel);
  CHECK(!started.Initialize());
  started.SkipReport();
  const auto round = [&] {
    started.Execute({Ask("", kTwoFloats), Ask("error", kTwoFloats)});
    started.Execute({Ask("", {"WRONG", 11, {1}, Floats({1})})});
    started.Execute({Ask("log", kTwoFloats)});
    started.peer.TakeLog();
  };
  // A line's blocks are given back a moment after the server has acknowledged it.
  const auto settled = [&] {
    usleep(100000);
    return started.peer.region.FreeBytes();
  };
  round();
  const std::uint64_t before = settled();
  for (int i = 0; i < 50; ++i) round();
  CHECK_EQ(settled(), before);
  CHECK(started.peer.region.Sane());
}

CASE(stub_grows_the_region_for_a_large_output) {
  Started started(kModel);
  CHECK(!started.Initialize());
  const auto answer = started.Execute({Ask("large", kTwoFloats)});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes.size(), 20000000u);
  CHECK(answer.responses[0].outputs[0].bytes.substr(19999996) == Floats({1.5}));
  CHECK(started.peer.region.Size() > 20000000);
  CHECK(started.peer.region.Sane());
}

CASE(stub_tells_that_the_region_cannot_grow_and_goes_on) {
  StubProcess::Options options;
  options.file_limit = 8 << 20;
  Started started(kModel, options, Peer::Options{});
  CHECK(!started.Initialize());
  CHECK_HAS(started.Execute({Ask("large", kTwoFloats)}).error.value_or(""), "--shm-size");
  CHECK(!started.Execute({Ask("", kTwoFloats)}).error);
}

CASE(stub_follows_a_region_that_the_server_has_grown) {
  Started started(kModel);
  CHECK(!started.Initialize());
  started.peer.region.Grow(12 << 20);
  const std::string data(8 << 20, '\0');
  const auto answer = started.Execute({Ask("", {"IN", 11, {2 << 20}, data})});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes.size(), data.size());
}

CASE(stub_logs_through_the_server_with_file_and_line) {
  Started started(kModel);
  CHECK(!started.Initialize());
  const LogLine report = started.peer.TakeLog();
  CHECK_HAS(report.message, "\"instance\": \"model_0_0\"");
  CHECK_EQ(report.level, 3);
  started.Execute({Ask("log", kTwoFloats)});
  const LogLine line = started.peer.TakeLog();
  CHECK_EQ(line.message, "from the model");
  CHECK_EQ(line.file, started.model);
  CHECK_EQ(line.line, 28);  // of kModel
  CHECK_EQ(line.level, 1);
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
  started.peer.SendCommand(31);
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

// Decoupled: the request's id says what to do.
constexpr char kStreamModel[] = R"(
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            if request.request_id() == "stream":
                for value in (1.0, 2.0):
                    array = np.array([value], dtype=np.float32)
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
                sender.send(flags=1)
            elif request.request_id() == "final":
                sender.send(flags=1)
            elif request.request_id() == "ask":
                answers = (request.is_cancelled(), sender.is_cancelled(), request.is_cancelled())
                sender.send(flags=1)
                answers += (sender.is_cancelled(),)
                pb_utils.Logger.log_info(str(answers))
            elif request.request_id() == "refused":
                try:
                    sender.send(flags=1)
                except pb_utils.TritonModelException as error:
                    pb_utils.Logger.log_info(str(error))
            elif request.request_id() == "raise":
                raise ValueError("in the middle")
)";

struct Streaming : Started {
  Streaming() : Started(kStreamModel, StubProcess::Options{}, Decoupled()) {
    CHECK(!Initialize());
    SkipReport();
  }
  static Peer::Options Decoupled() {
    Peer::Options options;
    options.decoupled = true;
    return options;
  }
  // Sends one batch with a request for each id; their response factories are 101, 102, ….
  void Send(const std::vector<std::string>& ids) {
    std::vector<PeerRequest> requests;
    for (const std::string& id : ids) {
      requests.push_back(Ask(id, kTwoFloats));
      requests.back().response_factory = 100 + static_cast<std::int64_t>(requests.size());
    }
    peer.SendExecute(requests);
  }
};

CASE(stub_sends_responses_of_a_decoupled_model_one_by_one) {
  Streaming streaming;
  streaming.Send({"stream"});
  for (const float value : {1.0F, 2.0F}) {
    const SentResponse sent = streaming.peer.TakeSent();
    CHECK_EQ(sent.flags, 0U);
    CHECK_EQ(sent.response_factory, 101);
    CHECK_EQ(sent.response.value().outputs.at(0).bytes, Floats({value}));
  }
  const SentResponse last = streaming.peer.TakeSent();
  CHECK_EQ(last.flags, 1U);
  CHECK(!last.response);
  const ExecuteAnswer answer = streaming.peer.TakeExecute();
  CHECK(!answer.error);
  CHECK_EQ(answer.responses.size(), 0U);
}

CASE(stub_drops_the_factory_of_a_request_that_nobody_answers) {
  Streaming streaming;
  streaming.Send({"nothing", "final"});
  CHECK_EQ(streaming.peer.TakeSent().response_factory, 102);
  CHECK(!streaming.peer.TakeExecute().error);
  CHECK_EQ(streaming.peer.TakeFactoryCleanup(), 101);
}

CASE(stub_lets_the_server_drop_the_factories_of_a_failed_batch) {
  Streaming streaming;
  streaming.Send({"nothing", "raise"});
  const ExecuteAnswer answer = streaming.peer.TakeExecute();
  CHECK_HAS(answer.error.value_or(""), "ValueError: in the middle");
  CHECK(!answer.factories_deleted);
  CHECK(!streaming.peer.from_stub_requests.TryPop(100));
}

CASE(stub_drops_no_factory_twice_when_a_batch_fails_after_a_final_response) {
  Streaming streaming;
  streaming.Send({"final", "raise"});
  CHECK_EQ(streaming.peer.TakeSent().response_factory, 101);
  CHECK_EQ(streaming.peer.TakeFactoryCleanup(), 102);
  const ExecuteAnswer answer = streaming.peer.TakeExecute();
  CHECK_HAS(answer.error.value_or(""), "ValueError: in the middle");
  CHECK(answer.factories_deleted);
  CHECK(!streaming.peer.from_stub_requests.TryPop(100));
}

CASE(stub_asks_whether_a_request_is_cancelled_until_it_is) {
  Streaming streaming;
  streaming.Send({"ask"});
  CHECK_EQ(streaming.peer.TakeCancelQuery(false), 101);
  CHECK_EQ(streaming.peer.TakeCancelQuery(true), 101);
  streaming.peer.TakeSent();  // the third time and after the end it knows
  CHECK_EQ(streaming.peer.TakeLog().message, "(False, True, True, True)");
}

CASE(stub_raises_what_the_server_says_of_a_response) {
  Streaming streaming;
  streaming.Send({"refused"});
  streaming.peer.TakeSent("the server does not like it");
  CHECK_EQ(streaming.peer.TakeLog().message, "the server does not like it");
}

CASE(stub_refuses_a_cuda_pool_with_a_reason) {
  Started started(kModel);
  CHECK(!started.Initialize());
  CHECK_HAS(started.peer.OfferCudaPool(), "there is no CUDA driver");
  CHECK(!started.Execute({Ask("", kTwoFloats)}).error);
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
    peer.from_stub_answers.Pop();
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
