// Streams of responses of other models in a region that has no room left: nothing is lost, nothing hangs, and
// the server is told later what it could not be told at once.
#include "check.h"
#include "running_stub.h"

using namespace envpack::test;

namespace {

// fill() takes all room of the region, drain() gives it back.
constexpr char kFilling[] = R"(
filling = []
drain = filling.clear

def fill(size=1 << 19):
    while size >= 8:
        try:
            filling.append(pb_utils.Tensor.empty("F", (size,), np.int8))
        except pb_utils.TritonModelException:
            size //= 2

class TritonPythonModel(TritonPythonModel):
    def run(self, request):
        try:
            return super().run(request)
        finally:
            drain()
)";

constexpr char kStart[] =
    "bls = pb_utils.InferenceRequest(request_id='id', inputs=request.inputs(), model_name='other', "
    "requested_output_names=['OUT'])\n"
    "kept['stream'] = bls.exec(decoupled=True)\n"
    "next(kept['stream'])\n";

constexpr std::uint64_t kStream = 501;
constexpr std::size_t kSize =
    4 << 20;  // of the region, and the limit of all files; the stub needs some itself

Peer::Options WithCancellation() {
  Peer::Options options;
  options.release = 2504;  // the first whose streams can be cancelled
  options.size = kSize;
  return options;
}

StubProcess::Options WithoutGrowth() {
  StubProcess::Options options;
  options.file_limit = kSize;
  return options;
}

PeerResponse ResponseOf(bool is_last) {
  PeerResponse response;
  response.stream = kStream;
  response.is_last = is_last;
  return response;
}

// A stub whose region cannot grow, with a stream that has begun.
struct FullRegion : RunningStub {
  FullRegion() : RunningStub(ScriptModel(kFilling), WithoutGrowth(), WithCancellation()) {
    CHECK(!Initialize());
    SkipReport();
    Run(kStart, [&] { peer.ServeInfer(ResponseOf(false)); });
  }

  template <typename Serve>
  std::string Run(const std::string& code, Serve serve) {
    peer.SendExecute({RequestOf(code, kTwoFloats)});
    serve();
    const auto answer = peer.TakeExecute();
    peer.Drop();
    CHECK_EQ(answer.error.value_or(""), "");
    return answer.responses.at(0).outputs.at(0).bytes;
  }
  std::string Run(const std::string& code) {
    return Run(code, [] {});
  }

  // Sends the last response, and returns when the stub has stored it: it reads the messages one by one.
  void SendLast() {
    peer.SendStreamResponse(ResponseOf(true));
    PeerResponse of_another = ResponseOf(false);
    of_another.stream = kStream + 7;
    peer.SendStreamResponse(of_another);
  }

  // The server is told the end of this stream with that of the next one.
  void CheckThatTheNextStreamEndsBoth() {
    PeerResponse whole = ResponseOf(true);
    whole.stream = kStream + 1;
    Run(kStart, [&] {
      peer.ServeInfer(whole);
      CHECK_EQ(peer.TakeStreamCleanup() + peer.TakeStreamCleanup(), 2 * kStream + 1);
    });
  }
};

}  // namespace

CASE(stub_answers_although_its_reason_has_no_room) {
  const std::string code = "raise ValueError('not today' + 'x' * (7 << 19))\n";
  for (const bool completes : {true, false}) {
    RunningStub running(code, WithoutGrowth(), {});
    std::string config;
    if (completes) running.peer.SendAutoComplete("{}");
    const auto error = completes ? running.peer.TakeAutoComplete(&config) : running.Initialize();
    CHECK_HAS(error.value_or(""), "ValueError: not todayxxx");
    CHECK_HAS(error.value_or(""), "xxx...\nFailed to increase the shared memory pool size for key");
    running.stub.Wait();
  }
}

CASE(stub_answers_although_the_configuration_has_no_room) {
  RunningStub running(
      "import triton_python_backend_utils as pb_utils\n"
      "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n"
      "        config._model_config['name'] = 'x' * (7 << 19)\n        return config\n",
      WithoutGrowth(), {});
  running.peer.SendAutoComplete("{}");
  std::string config;
  CHECK_HAS(running.peer.TakeAutoComplete(&config).value_or(""), "Failed to increase the shared memory pool");
}

CASE(stub_gives_the_last_response_although_the_end_of_its_stream_cannot_be_told) {
  FullRegion stub;
  stub.SendLast();
  const std::string code =
      "fill()\nanswer = [next(kept['stream']).has_error(), next(kept['stream'], 'end')]\n";
  CHECK_EQ(stub.Run(code), "[false, \"end\"]");
  stub.CheckThatTheNextStreamEndsBoth();
}

CASE(stub_survives_that_a_stream_is_dropped_while_its_end_cannot_be_told) {
  FullRegion stub;
  stub.SendLast();
  CHECK_EQ(stub.Run("fill()\nkept.clear()\nanswer = 'alive'"), "\"alive\"");
  stub.CheckThatTheNextStreamEndsBoth();
}

CASE(stub_ends_a_stream_whose_cancellation_found_no_room) {
  FullRegion stub;
  const std::string code =
      "fill()\ntry:\n    kept['stream'].cancel()\n"
      "except pb_utils.TritonModelException as error:\n    answer = str(error)\n";
  CHECK_HAS(stub.Run(code),
            "Failed to increase the shared memory pool size for key '" + stub.peer.region.name());
  stub.SendLast();
  CHECK_EQ(stub.Run("answer = next(kept['stream']).has_error()",
                    [&] { CHECK_EQ(stub.peer.TakeStreamCleanup(), kStream); }),
           "false");
}

CASE(stub_receives_the_messages_after_one_that_it_cannot_read) {
  FullRegion stub;
  stub.peer.to_stub_messages.Push(std::int64_t{1} << 40);
  stub.SendLast();
  CHECK_EQ(stub.Run("answer = next(kept['stream']).has_error()",
                    [&] { CHECK_EQ(stub.peer.TakeStreamCleanup(), kStream); }),
           "false");
  CHECK_HAS(stub.stub.Output(), "envpack stub: cannot process a message of the server: handle ");
}
