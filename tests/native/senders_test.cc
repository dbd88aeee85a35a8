// How the real stub sends responses one by one.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/descriptor.h"
#include "check.h"
#include "running_stub.h"

using namespace envpack::test;

namespace {

// A decoupled model. The request's id selects what it does.
constexpr char kStreamModel[] = R"(
import os, threading
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
            elif request.request_id() == "query":
                answers = (request.is_cancelled(), sender.is_cancelled(), request.is_cancelled())
                sender.send(flags=1)
                answers += (sender.is_cancelled(),)
                pb_utils.Logger.log_info(str(answers))
            elif request.request_id() == "refused":
                try:
                    sender.send(flags=1)
                except pb_utils.TritonModelException as error:
                    pb_utils.Logger.log_info(str(error))
            elif request.request_id() == "large":
                large = pb_utils.Tensor("OUT", np.ones(5000000, dtype=np.float32))
                try:
                    sender.send(pb_utils.InferenceResponse([large]), flags=1)
                except pb_utils.TritonModelException as error:
                    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))), flags=1)
            elif request.request_id() == "keep":
                self.kept = sender
            elif request.request_id() == "drop":
                self.kept = None
                sender.send(flags=1)
            elif request.request_id() in ("thread", "two threads", "raise beside a thread"):
                one = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, dtype=np.float32))])
                for _ in range(2 if request.request_id() == "two threads" else 1):
                    threading.Thread(target=sender.send, args=(one,)).start()
                open(os.path.join(pb_utils.get_model_dir(), "go_on")).close()
                if request.request_id() == "raise beside a thread":
                    raise ValueError("in the middle")
                sender.send(flags=1)
            elif request.request_id() == "raise":
                raise ValueError("in the middle")
)";

// A file beside the model's that it cannot open before the test calls GoOn().
std::string MakeWait(const std::string& model) {
  const std::string path = std::filesystem::path(model).replace_filename("go_on");
  CHECK_EQ(mkfifo(path.c_str(), 0600), 0);
  return path;
}

void GoOn(const std::string& path) {
  CHECK(Soon([&] { return bool(envpack::Descriptor(open(path.c_str(), O_WRONLY | O_NONBLOCK))); }));
}

struct Streaming : RunningStub {
  explicit Streaming(const StubProcess::Options& options = {})
      : RunningStub(kStreamModel, options, Decoupled()) {
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
      requests.push_back(RequestOf(id, kTwoFloats));
      requests.back().response_factory = 100 + static_cast<std::int64_t>(requests.size());
    }
    peer.SendExecute(requests);
  }
  // Lets the model go on when a thread of it is sending. Returns that message, which PutBack() makes the next
  // one again.
  std::int64_t GoOnWhileSending() {
    const std::int64_t sent = peer.from_stub_requests.Pop();
    GoOn(go_on);
    return sent;
  }
  const std::string go_on = MakeWait(model);
};

}  // namespace

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

CASE(stub_fails_a_request_whose_sender_is_dropped_later) {
  Streaming streaming;
  streaming.Send({"keep"});
  CHECK(!streaming.peer.TakeExecute().error);
  streaming.Send({"drop"});
  const SentResponse lost = streaming.peer.TakeSent();
  CHECK_EQ(lost.response_factory, 101);
  CHECK_EQ(lost.flags, 1u);
  CHECK_HAS(lost.response.value().error.value_or(""),
            "has since dropped the request and its response sender");
  CHECK(!streaming.peer.TakeSent().response);
  CHECK(!streaming.peer.TakeExecute().error);
}

CASE(stub_fails_the_requests_of_a_batch_that_a_decoupled_model_has_lost) {
  StubProcess::Options options;
  options.variables = {"ENVPACK_LOG_FAILURES="};
  Streaming streaming(options);
  streaming.Send({"nothing", "final", "keep"});
  CHECK_EQ(streaming.peer.TakeSent().response_factory, 102);
  CHECK(!streaming.peer.TakeExecute().error);
  const SentResponse lost = streaming.peer.TakeSent();
  CHECK_EQ(lost.response_factory, 101);
  CHECK_EQ(lost.flags, 1u);
  CHECK_HAS(lost.response.value().error.value_or(""), "nothing can answer any more");
  CHECK_HAS(streaming.peer.TakeLog().message, "nothing can answer any more");
  CHECK(!streaming.peer.from_stub_requests.TryPop(100));
}

CASE(stub_leaves_the_factories_of_a_failed_batch_to_the_server) {
  Streaming streaming;
  streaming.Send({"nothing", "raise"});
  const ExecuteAnswer answer = streaming.peer.TakeExecute();
  CHECK_HAS(answer.error.value_or(""), "ValueError: in the middle");
  CHECK(!answer.factories_deleted);
  CHECK(!streaming.peer.from_stub_requests.TryPop(100));
}

CASE(stub_deletes_no_factory_twice_when_a_batch_fails_after_a_final_response) {
  Streaming streaming;
  streaming.Send({"final", "raise"});
  CHECK_EQ(streaming.peer.TakeSent().response_factory, 101);
  CHECK_EQ(streaming.peer.TakeFactoryCleanup(), 102);
  const ExecuteAnswer answer = streaming.peer.TakeExecute();
  CHECK_HAS(answer.error.value_or(""), "ValueError: in the middle");
  CHECK(answer.factories_deleted);
  CHECK(!streaming.peer.from_stub_requests.TryPop(100));
}

CASE(stub_fails_a_batch_when_the_server_has_finished_what_a_thread_sends) {
  Streaming streaming;
  streaming.Send({"raise beside a thread"});
  const std::int64_t sent = streaming.GoOnWhileSending();
  CHECK(!streaming.peer.from_stub_answers.TryPop(100));  // with the answer, the server deletes the factory
  streaming.peer.from_stub_requests.PutBack(sent);
  CHECK_EQ(streaming.peer.TakeSent().response_factory, 101);
  CHECK_HAS(streaming.peer.TakeExecute().error.value_or(""), "ValueError: in the middle");
}

CASE(stub_ends_a_request_when_the_server_has_finished_what_a_thread_sends) {
  Streaming streaming;
  streaming.Send({"thread"});
  const std::int64_t sent = streaming.GoOnWhileSending();
  CHECK(
      !streaming.peer.from_stub_requests.TryPop(100));  // with the final flag, the server deletes the factory
  streaming.peer.from_stub_requests.PutBack(sent);
  CHECK_EQ(streaming.peer.TakeSent().flags, 0u);
  CHECK_EQ(streaming.peer.TakeSent().flags, 1u);
  CHECK(!streaming.peer.TakeExecute().error);
}

CASE(stub_sends_a_response_when_the_server_has_finished_the_one_before) {
  Streaming streaming;
  streaming.Send({"two threads"});
  const std::int64_t sent = streaming.GoOnWhileSending();
  CHECK(!streaming.peer.from_stub_requests.TryPop(100));  // a server mixes up the bytes of two at once
  streaming.peer.from_stub_requests.PutBack(sent);
  for (const std::uint32_t flags : {0u, 0u, 1u}) CHECK_EQ(streaming.peer.TakeSent().flags, flags);
  CHECK(!streaming.peer.TakeExecute().error);
}

CASE(stub_queries_cancellation_until_the_request_is_cancelled) {
  Streaming streaming;
  streaming.Send({"query"});
  CHECK_EQ(streaming.peer.TakeCancelQuery(false).response_factory, 101);
  CHECK_EQ(streaming.peer.TakeCancelQuery(true).response_factory, 101);
  streaming.peer.TakeSent();  // the third call and the one after the end need no query
  CHECK_EQ(streaming.peer.TakeLog().message, "(False, True, True, True)");
}

CASE(stub_raises_the_servers_error_for_a_response) {
  Streaming streaming;
  streaming.Send({"refused"});
  streaming.peer.TakeSent("the server does not like it");
  CHECK_EQ(streaming.peer.TakeLog().message, "the server does not like it");
}

CASE(stub_may_send_an_error_in_place_of_a_final_response_that_is_too_large) {
  StubProcess::Options options;
  options.file_limit = 8 << 20;
  Streaming stub(options);
  stub.Send({"large"});
  const auto sent = stub.peer.TakeSent();
  CHECK_HAS(sent.response->error.value_or(""), "File too large");
  CHECK_EQ(sent.flags, 1u);
  stub.peer.TakeExecute();
  stub.peer.Drop();
  CHECK(!stub.peer.from_stub_requests.TryPop(100));  // the server deletes the factory
}

CASE(stub_logs_what_a_coroutine_raises_as_a_variable_says) {
  for (const char* setting : {"", "1", "0"}) {
    StubProcess::Options options;
    options.variables = {std::string("ENVPACK_LOG_FAILURES=") + setting};
    RunningStub running(R"(
class TritonPythonModel:
    async def execute(self, requests):
        requests[0].get_response_sender().send(flags=1)
        raise OSError("\udcff is\nmissing" + 1000 * ".")
)",
                        options, Streaming::Decoupled());
    CHECK(!running.Initialize());
    running.SkipReport();
    running.peer.SendExecute({RequestOf("", kTwoFloats)});
    running.peer.TakeSent();
    running.peer.TakeExecute();
    if (*setting != '0') {
      const std::string line = running.peer.TakeLog().message;
      const bool is_whole = *setting == '1';
      CHECK_EQ(line.find("Failed to process the request(s) for model 'model_0_0', message: OSError: "), 0u);
      CHECK_HAS(line, is_whole ? "\\udcff is\nmissing" : "\\udcff is missing");
      CHECK_EQ(line.size() > 1003, is_whole);
    }
    CHECK(!running.peer.from_stub_requests.TryPop(100));
  }
}

namespace {

// A decoupled model whose coroutine ends the first request and leaves out the second. The third goes on by
// itself.
struct Coroutine : RunningStub {
  explicit Coroutine(const std::string& last_line)
      : RunningStub(R"(
import asyncio, os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    async def execute(self, requests):
        requests[0].get_response_sender().send(flags=1)
        if len(requests) > 2:
            asyncio.ensure_future(self.go_on(requests[2].get_response_sender()))
        open(os.path.join(pb_utils.get_model_dir(), "go_on")).close()
        )" + last_line + R"(
    async def go_on(self, sender):
        sender.send(flags=1)
)",
                    StubProcess::Options{}, Streaming::Decoupled()) {
    CHECK(!Initialize());
    SkipReport();
  }
  // Until the coroutine is at its last line, and the batch is answered.
  void Run(std::int64_t count) {
    std::vector<PeerRequest> requests;
    for (std::int64_t i = 0; i < count; ++i) {
      requests.push_back(RequestOf("", kTwoFloats));
      requests.back().response_factory = 101 + i;
    }
    peer.SendExecute(requests);
    CHECK_EQ(peer.TakeSent().response_factory, 101);
    CHECK(!peer.TakeExecute().error);
    GoOn(go_on);
  }
  const std::string go_on = MakeWait(model);
};

}  // namespace

CASE(stub_fails_the_requests_that_a_coroutine_leaves_open_when_it_raises) {
  Coroutine running("raise ValueError('no')");
  running.Run(2);
  const SentResponse failed = running.peer.TakeSent();
  CHECK_EQ(failed.response_factory, 102);
  CHECK_EQ(failed.flags, 1u);
  CHECK_HAS(failed.response.value().error.value_or(""),
            "Failed to process the request(s) for model 'model_0_0', message: ValueError: no");
  CHECK(!running.peer.from_stub_requests.TryPop(100));
}

CASE(stub_fails_the_requests_that_a_coroutine_has_lost) {
  Coroutine running("return");
  running.Run(3);
  std::map<std::int64_t, std::string> errors;
  for (int i = 0; i < 2; ++i) {
    const SentResponse sent = running.peer.TakeSent();
    CHECK_EQ(sent.flags, 1u);
    errors[sent.response_factory] = sent.response ? sent.response->error.value_or("") : "";
  }
  CHECK_HAS(errors.at(102), "nothing can answer any more");
  CHECK_EQ(errors.at(103), "");
}
