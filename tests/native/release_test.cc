// The real stub with the server of each release: every kind of exchange, with the layouts of
// ENVPACK_TEST_RELEASE. The stub must reject what the release lacks, with a message that names the first
// release that has it.
#include <exception>
#include <memory>
#include <utility>

#include "check.h"
#include "running_stub.h"

using namespace envpack::test;

namespace {

// What the code raises is its answer.
constexpr char kCaught[] = R"(
class TritonPythonModel(TritonPythonModel):
    def run(self, request):
        try:
            return super().run(request)
        except pb_utils.TritonModelException as error:
            return as_response(str(error))
)";

// One stub serves all cases that run code, since starting Python takes longer than the rest of them. A case
// that fails leaves a stub behind that may wait for anything, so the next one starts another.
class Script {
 public:
  Script() : running(Shared()), peer(running.peer) {}
  ~Script() {
    if (std::uncaught_exceptions() > 0) shared_.reset();
  }
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  // Runs code while `serve` plays the server. Returns the code's answer as JSON.
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
  // Whether the release has a feature. If not, checks that the code reports the first release that has it.
  bool Has(int since, const std::string& code) {
    const int release = peer.layouts.release();
    if (release >= since) return true;
    const std::string answer = Run(code);
    CHECK_HAS(answer,
              "Triton " + Layouts(since).Name() + " or later; this server is Triton " + peer.layouts.Name());
    return false;
  }

 private:
  static RunningStub& Shared() {
    if (!shared_) {
      auto started = std::make_unique<RunningStub>(ScriptModel(kCaught));
      CHECK(!started->Initialize());
      started->SkipReport();
      shared_ = std::move(started);
    }
    return *shared_;
  }

  static inline std::unique_ptr<RunningStub> shared_;

 public:
  RunningStub& running;
  Peer& peer;
};

const std::string kInferRequest =
    "bls = pb_utils.InferenceRequest(request_id='id', inputs=request.inputs(), model_name='other', "
    "requested_output_names=['OUT', 'MORE'])\n";

}  // namespace

CASE(release_serves_a_model_from_start_to_end) {
  RunningStub running(kModel);
  CHECK(running.peer.BeatsAgain());
  CHECK(!running.Initialize());
  running.SkipReport();
  const auto answer = running.Execute({RequestOf("", kTwoFloats), RequestOf("error", kTwoFloats)});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK(answer.responses.at(0).outputs.at(0).bytes == Floats({3.0, -4.0}));
  CHECK_EQ(answer.responses.at(1).error.value_or(""), "requested error");
  if (running.peer.layouts.release() >= 2309) CHECK_EQ(answer.responses[1].code, 2);
  const std::string sent("\3\0\0\0a\0b\0\0\0\0", 11);
  const auto bytes = running.Execute({RequestOf("", {"IN", 13, {1, 2}, sent, true})});
  CHECK(bytes.responses.at(0).outputs.at(0).bytes == std::string("\4\0\0\0a\0b!\1\0\0\0!", 13));
  CHECK_HAS(running.Execute({RequestOf("", {"WRONG", 11, {1}, Floats({1})})}).error.value_or(""),
            "nothing to do");
  running.Execute({RequestOf("log", kTwoFloats)});
  CHECK_EQ(running.peer.TakeLog().message, "from the model");
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
  CHECK_EQ(running.stub.Wait(), 0);
}

CASE(release_completes_a_configuration) {
  RunningStub running(kModel);
  running.peer.SendAutoComplete(R"({"name": "m"})");
  std::string config;
  CHECK(!running.peer.TakeAutoComplete(&config));
  CHECK_EQ(config, R"({"name": "m", "max_batch_size": 4})");
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
  CHECK_EQ(running.stub.Wait(), 0);
}

// With an execution environment, the server adds the environment's folder to its own value.
CASE(release_gives_programs_of_the_model_the_servers_library_path) {
  const std::string folder = TheSetup().libraries + ":";
  const std::string values[] = {"/mine", ":/mine", folder + "/mine"};
  for (const std::string& server : values) {
    Peer peer;
    peer.region.As<records::Control>(peer.control)->uses_env = true;
    StubProcess::Options options;
    options.library_path = folder + (peer.layouts.release() >= 2508 ? folder : "") + server;
    StubProcess stub(peer,
                     WriteModel("import os\nclass TritonPythonModel:\n    @staticmethod\n"
                                "    def auto_complete_config(config):\n"
                                "        config._model_config['path'] = os.environ['LD_LIBRARY_PATH']\n"
                                "        return config\n"),
                     options);
    peer.TakeStartupMessage();
    peer.SendAutoComplete("{}");
    std::string config;
    CHECK(!peer.TakeAutoComplete(&config));
    CHECK_EQ(config, "{\"path\": \"" + server + "\"}");
    CHECK(peer.TakeFinalize(peer.SendFinalize()));
    CHECK_EQ(stub.Wait(), 0);
  }
}

CASE(release_reads_every_property_of_a_request) {
  Script script;
  CHECK_EQ(script.Run("answer = [request.correlation_id(), request.flags(), request.timeout(), "
                      "request.parameters(), sorted(request.requested_output_names())]"),
           R"([77, 3, 1500000, "{}", []])");
}

CASE(release_streams_responses) {
  Peer::Options options;
  options.decoupled = true;
  RunningStub running(R"(
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        for value in (1.0, 2.0):
            array = np.array([value], dtype=np.float32)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name in ("OUT", "MORE")]))
        sender.send(flags=1)
)",
                      StubProcess::Options{}, options);
  CHECK(!running.Initialize());
  running.SkipReport();
  PeerRequest request = RequestOf("", kTwoFloats);
  request.response_factory = 101;
  request.outputs = {"OUT"};
  running.peer.SendExecute({request});
  for (const float value : {1.0f, 2.0f}) {
    const auto sent = running.peer.TakeSent();
    CHECK_EQ(sent.flags, 0u);
    CHECK_EQ(sent.response_factory, 101);
    CHECK_EQ(sent.response.value().outputs.size(), 1u);  // of two, as requested
    CHECK_EQ(sent.response->outputs[0].name, "OUT");
    CHECK(sent.response->outputs[0].bytes == Floats({value}));
  }
  CHECK_EQ(running.peer.TakeSent().flags, 1u);
  const int release = running.peer.layouts.release();
  if (release >= 2312 && release < 2410) CHECK_EQ(running.peer.TakeFactoryCleanup(), 101);
  CHECK(!running.peer.TakeExecute().error);
}

CASE(release_sends_requests_to_another_model) {
  Script script;
  PeerResponse response;
  response.outputs = {{"OUT", 11, {1}, Floats({7})}};
  const std::string answer =
      script.Run(kInferRequest +
                     "given = bls.exec()\n"
                     "answer = [given.has_error(), given.output_tensors()[0].as_numpy().tolist()]",
                 [&] {
                   const PeerInferRequest seen = script.peer.ServeInfer(response);
                   CHECK_EQ(seen.model, "other");
                   CHECK_EQ(seen.id, "id");
                   CHECK(!seen.decoupled);
                   CHECK((seen.outputs == std::vector<std::string>{"MORE", "OUT"}));
                   CHECK(seen.inputs.at(0).bytes == Floats({1.5, -2.0}));
                   CHECK_EQ(seen.parameters, "{}");
                 });
  CHECK_EQ(answer, "[false, [7.0]]");
  response = {};
  response.error = "no";
  response.code = 4;
  CHECK_HAS(script.Run(kInferRequest + "answer = bls.exec().error().message()",
                       [&] { script.peer.ServeInfer(response); }),
            "no");
}

CASE(release_passes_preferred_memory_and_trace_to_another_model) {
  Script script;
  const int release = script.peer.layouts.release();
  PeerRequest request = RequestOf(
      "bls = pb_utils.InferenceRequest(inputs=[], model_name='other', requested_output_names=[], "
      "model_version=3, "
      "flags=2, timeout=70000, correlation_id=8, trace=request.trace(), "
      "preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 5))\n"
      "bls.exec()",
      kTwoFloats);
  request.trace = 0x7F0055556666;
  request.trace_context = R"({"traceparent": "00-1"})";
  script.peer.SendExecute({request});
  const PeerInferRequest seen = script.peer.ServeInfer(PeerResponse{});
  CHECK_EQ(script.peer.TakeExecute().error.value_or(""), "");
  CHECK_EQ(seen.preferred_memory, 1);
  CHECK_EQ(seen.preferred_device, 5);
  CHECK_EQ(seen.trace, release >= 2308 ? request.trace : 0);
  CHECK_EQ(seen.trace_context, release >= 2403 ? request.trace_context : "");
  CHECK_EQ(seen.version, 3);
  CHECK_EQ(seen.flags, 2u);
  CHECK_EQ(seen.timeout, 70000u);
  CHECK_EQ(seen.correlation_number, 8u);
}

CASE(release_reads_a_stream_of_another_model) {
  Script script;
  PeerResponse response;
  response.outputs = {{"OUT", 11, {1}, Floats({7})}};
  response.stream = 42;
  response.is_last = false;
  const std::string answer = script.Run(
      kInferRequest +
          "answer = [r.output_tensors()[0].as_numpy()[0].item() for r in bls.exec(decoupled=True)]",
      [&] {
        CHECK(script.peer.ServeInfer(response).decoupled);
        response.outputs[0].bytes = Floats({8});
        response.is_last = true;
        script.peer.SendStreamResponse(response);
        CHECK_EQ(script.peer.TakeStreamCleanup(), 42u);
      });
  CHECK_EQ(answer, "[7.0, 8.0]");
}

CASE(release_queries_cancellation) {
  Script script;
  const std::string code = "answer = request.is_cancelled()";
  if (!script.Has(2310, code)) return;
  CHECK_EQ(script.Run(code, [&] { CHECK_EQ(script.peer.TakeCancelQuery(false).response_factory, 0); }),
           "false");
  CHECK_EQ(script.Run(code, [&] { script.peer.TakeCancelQuery(true); }), "true");
}

CASE(release_has_metrics) {
  Script script;
  const std::string family =
      "kept['family'] = pb_utils.MetricFamily(name='n', description='d', "
      "kind=pb_utils.MetricFamily.COUNTER)\n";
  if (script.Has(2305, family)) {
    const std::string answer = script.Run(
        family +
            "kept['metric'] = kept['family'].Metric(labels={'a': 'b'})\nkept['metric'].increment(2.5)\n"
            "answer = kept['metric'].value()",
        [&] {
          CHECK_EQ(script.peer.TakeMetrics("MetricFamilyRequestNew").name, "n");
          CHECK_EQ(script.peer.TakeMetrics("MetricRequestNew").labels, R"({"a": "b"})");
          CHECK_EQ(script.peer.TakeMetrics("MetricRequestIncrement").operation_value, 2.5);
          script.peer.TakeMetrics("MetricRequestValue", 8.5);
        });
    CHECK_EQ(answer, "8.5");
  }
  const std::string histogram =
      "kept['h'] = pb_utils.MetricFamily(name='h', description='d', kind=pb_utils.MetricFamily.HISTOGRAM)\n";
  if (!script.Has(2408, histogram)) return;
  script.Run(histogram + "kept['m'] = kept['h'].Metric(buckets=[1.0, 2.0, 5.0])\nkept['m'].observe(1.5)",
             [&] {
               script.peer.TakeMetrics("MetricFamilyRequestNew");
               CHECK_EQ(script.peer.TakeMetrics("MetricRequestNew").buckets.size(), 3u);
               CHECK_EQ(script.peer.TakeMetrics("MetricRequestObserve").operation_value, 1.5);
             });
}

CASE(release_controls_other_models) {
  Script script;
  const std::string code = "answer = pb_utils.is_model_ready('other')";
  if (!script.Has(2307, code)) return;
  const auto ready = [&] { CHECK_EQ(script.peer.TakeModels("ModelReadinessRequest", true).name, "other"); };
  CHECK_EQ(script.Run(code, ready), "true");
  const auto refuse = [&] { script.peer.TakeModels("LoadModelRequest", false, "not today"); };
  CHECK_HAS(script.Run("pb_utils.load_model('other')", refuse), "not today");
}

CASE(release_reschedules_a_request) {
  Script script;
  if (!script.Has(2311, "request.set_release_flags(2)")) return;
  const Handle batch = script.peer.SendExecute({RequestOf("request.set_release_flags(2)", kTwoFloats)});
  const Handle args = script.peer.region.As<records::Message>(batch)->args;
  // A rescheduled request must not be answered, and this one is.
  CHECK_HAS(script.peer.TakeExecute().error.value_or(""), "Expected a None object");
  const Handle request = *script.peer.region.As<Handle>(args, script.peer.layouts.SizeOf("RequestBatch"));
  CHECK_EQ(*Fields(script.peer.region.At(request), script.peer.layouts.Of("Request"))
                .Of<std::uint32_t>("release_flags"),
           2u);
}

CASE(release_sends_and_reads_parameters_of_responses) {
  Script script;
  const std::string code =
      "response = pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1, dtype=np.int8))], "
      "parameters={'a': 1})\n";
  if (script.peer.layouts.release() < 2502) {
    CHECK_HAS(script.running.Execute({RequestOf(code, kTwoFloats)}).error.value_or(""),
              "Triton 25.02 or later");
    return;
  }
  CHECK_EQ(script.running.Execute({RequestOf(code, kTwoFloats)}).responses.at(0).parameters, R"({"a": 1})");
  // Triton 26.06 aborts when it reads a larger one.
  CHECK_HAS(script.Run("pb_utils.InferenceResponse([], parameters={'a': -2**63, 'b': 2**63})"),
            "from -2**63 to 2**63 - 1, which 'b' is not");
  PeerResponse response;
  response.parameters = R"({"b": 2})";
  CHECK_EQ(script.Run(kInferRequest + "answer = bls.exec().parameters()",
                      [&] { script.peer.ServeInfer(response); }),
           R"("{\"b\": 2}")");
}

CASE(release_cancels_a_stream) {
  Script script;
  PeerResponse response;
  response.stream = 42;
  response.is_last = false;
  const std::string code = kInferRequest +
                           "stream = bls.exec(decoupled=True)\nstream.cancel()\nlast = list(stream)[-1]\n"
                           "answer = last.error().message() if last.has_error() else None";
  const bool can = script.peer.layouts.release() >= 2504;
  const std::string answer = script.Run(code, [&] {
    script.peer.ServeInfer(response);
    if (can) CHECK_EQ(script.peer.TakeStreamCancel(), 42u);
    response.is_last = true;
    response.error = "cancelled";
    script.peer.SendStreamResponse(response);
    CHECK_EQ(script.peer.TakeStreamCleanup(), 42u);
  });
  CHECK_HAS(answer, can ? "cancelled" : "Triton 25.04 or later");
}

CASE(release_answers_readiness_probes) {
  RunningStub running(R"(
import asyncio

class TritonPythonModel:
    def initialize(self, args):
        self.answers = iter([True, False, "yes", None])

    async def is_ready(self):
        await asyncio.sleep(0)
        answer = next(self.answers)
        if answer is None:
            raise ValueError("cannot say")
        return answer

    def execute(self, requests):
        return []
)");
  CHECK(!running.Initialize());
  const bool offered = running.peer.region.As<records::Control>(running.peer.control)->has_readiness;
  CHECK_EQ(offered, running.peer.layouts.HasCommand("UserModelReadinessRequest"));
  if (!offered) return;
  std::string error;
  CHECK(running.peer.ProbeReadiness(&error));
  CHECK(!running.peer.ProbeReadiness(&error));
  CHECK_EQ(error, "");
  running.peer.ProbeReadiness(&error);
  CHECK_HAS(error, "must return a bool, not <class 'str'>");
  running.peer.ProbeReadiness(&error);
  CHECK_HAS(error, "ValueError: cannot say");
}
