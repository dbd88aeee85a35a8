// How the real stub answers batches of requests.
#include "check.h"
#include "running_stub.h"

using namespace envpack::test;

CASE(stub_multiplies_floats) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  const auto answer =
      running.Execute({RequestOf("", kTwoFloats), RequestOf("", {"IN", 11, {1, 1}, Floats({4})})});
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
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  const std::string sent("\3\0\0\0a\0b\0\0\0\0", 11);
  const auto answer = running.Execute({RequestOf("", {"IN", 13, {1, 2}, sent})});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK(answer.responses.at(0).outputs.at(0).bytes == std::string("\4\0\0\0a\0b!\1\0\0\0!", 13));
}

CASE(stub_sends_texts_and_other_objects_as_bytes) {
  RunningStub running(ScriptModel());
  CHECK(!running.Initialize());
  const PeerRequest request = RequestOf(R"(
out = np.array(["a\u00e9", b"b", 7], dtype=object)
response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])
)",
                                        kTwoFloats);
  const auto answer = running.Execute({request});
  CHECK_EQ(answer.error.value_or(""), "");
  const std::string sent(
      "\3\0\0\0a\xc3\xa9\1\0\0\0b\1\0\0\0"
      "7",
      17);
  CHECK(answer.responses.at(0).outputs.at(0).bytes == sent);
}

CASE(stub_reports_malformed_bytes) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  const auto error = [&](const std::string& bytes) {
    return running.Execute({RequestOf("", {"IN", 13, {1, 2}, bytes})}).error.value_or("");
  };
  const std::string two("\3\0\0\0a\0b\1\0\0\0c", 12);
  CHECK_EQ(error(two), "");
  CHECK_HAS(error(""), "Invalid bytes tensor data: incomplete length field");
  CHECK_HAS(error(two.substr(0, 7)), "Invalid bytes tensor data: incomplete length field");
  CHECK_HAS(error(two.substr(0, 10)), "Invalid bytes tensor data: incomplete length field");
  CHECK_HAS(error(two.substr(0, 11)), "Invalid bytes tensor data: string extends beyond buffer");
  CHECK_HAS(error(two.substr(0, 6)), "Invalid bytes tensor data: string extends beyond buffer");
  CHECK_HAS(error("\xff\xff\xff\xff"), "Invalid bytes tensor data: string extends beyond buffer");
  CHECK_HAS(error(two + "x"), "Invalid bytes tensor data: more bytes than elements");
  CHECK_EQ(error(two), "");
}

CASE(stub_passes_empty_tensors) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  for (const std::int32_t dtype : {11, 13}) {
    const auto answer = running.Execute({RequestOf("", {"IN", dtype, {0, 3}, ""})});
    CHECK_EQ(answer.error.value_or(""), "");
    CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes.size(), 0u);
    CHECK((answer.responses[0].outputs[0].dims == std::vector<std::int64_t>{0, 3}));
  }
}

CASE(stub_reads_a_tensor_whose_memory_is_separate) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  const auto answer = running.Execute({RequestOf("", {"IN", 11, {2}, Floats({1, 2}), true})});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK(answer.responses.at(0).outputs.at(0).bytes == Floats({2, 4}));
}

CASE(stub_sends_only_requested_outputs) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  PeerRequest request = RequestOf("", kTwoFloats);
  request.outputs = {"MORE", "UNKNOWN"};
  const auto answer = running.Execute({request});
  CHECK_EQ(answer.responses.at(0).outputs.size(), 1u);
  CHECK_EQ(answer.responses[0].outputs[0].name, "MORE");
}

// The second request removes an output, whose bytes are overwritten when nothing needs them any more.
CASE(stub_sends_one_response_for_several_requests) {
  RunningStub running(ScriptModel());
  CHECK(!running.Initialize());
  const PeerRequest first = RequestOf(R"(
import weakref
ones = bytearray(b"1" * 8)
more = np.frombuffer(ones, dtype=np.int8)
weakref.finalize(more, ones.__setitem__, slice(None), bytes(8))
out = np.array([7], dtype=np.int8)
response = pb_utils.InferenceResponse([pb_utils.Tensor("MORE", more), pb_utils.Tensor("OUT", out)])
kept["response"] = response
)",
                                      kTwoFloats);
  PeerRequest second = RequestOf("response = kept.pop('response')", kTwoFloats);
  second.outputs = {"OUT"};
  const auto answer = running.Execute({first, second});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes, "11111111");
  CHECK_EQ(answer.responses[0].outputs.at(1).bytes, "\7");
  CHECK_EQ(answer.responses.at(1).outputs.size(), 1u);
  CHECK_EQ(answer.responses[1].outputs[0].bytes, "\7");
}

CASE(stub_fails_one_request_of_a_batch) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  const auto answer = running.Execute({RequestOf("error", kTwoFloats), RequestOf("", kTwoFloats)});
  CHECK(!answer.error);
  CHECK_EQ(answer.responses.at(0).error.value_or(""), "requested error");
  CHECK_EQ(answer.responses[0].code, 2);
  CHECK(!answer.responses.at(1).error);
}

// The model returns this for three requests, of which it refers to the last one.
void CheckThatOneOfThreeIsLost(const std::string& returned, std::size_t responses) {
  RunningStub running(R"(
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        self.kept = requests[2]
        answer = pb_utils.InferenceResponse([])
        return )" + returned);
  CHECK(!running.Initialize());
  running.SkipReport();
  std::vector<PeerRequest> requests(3, RequestOf("", kTwoFloats));
  for (std::size_t i = 0; i < 3; ++i) requests[i].response_factory = 101 + static_cast<std::int64_t>(i);
  running.peer.SendExecute(requests);
  if (responses == 0) CHECK_EQ(running.peer.TakeSent().response_factory, 101);
  const ExecuteAnswer answer = running.peer.TakeExecute();
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK_EQ(answer.responses.size(), responses);
  const SentResponse lost = running.peer.TakeSent();
  CHECK_EQ(lost.response_factory, 102);
  CHECK_EQ(lost.flags, 1u);
  CHECK_HAS(lost.response.value().error.value_or(""),
            "Failed to process the request(s) for model 'model_0_0', message: Python model 'model_0_0' has "
            "returned from execute without a final response");
  CHECK(!running.peer.from_stub_requests.TryPop(100));
}

CASE(stub_fails_the_requests_of_a_batch_that_the_model_has_lost) {
  CheckThatOneOfThreeIsLost("[answer, None, None]", 3);
  CheckThatOneOfThreeIsLost("requests[0].get_response_sender().send(answer, flags=1)", 0);
}

CASE(stub_fails_a_request_that_the_model_drops_after_execute_has_returned) {
  RunningStub running(R"(
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    kept = None

    def execute(self, requests):
        self.kept = requests[0].get_response_sender() if self.kept is None else None
        return [None if self.kept else pb_utils.InferenceResponse([])])");
  CHECK(!running.Initialize());
  running.SkipReport();
  PeerRequest request = RequestOf("", kTwoFloats);
  request.response_factory = 101;
  running.peer.SendExecute({request});
  CHECK_EQ(running.peer.TakeExecute().error.value_or(""), "");
  CHECK(!running.peer.from_stub_requests.TryPop(100));
  request.response_factory = 102;
  running.peer.SendExecute({request});
  const SentResponse lost = running.peer.TakeSent();
  CHECK_EQ(lost.response_factory, 101);
  CHECK_EQ(lost.flags, 1u);
  CHECK_HAS(lost.response.value().error.value_or(""),
            "has returned from execute without a final response, and has since dropped the request and its");
  CHECK_EQ(running.peer.TakeExecute().error.value_or(""), "");
}

CASE(stub_reports_an_exception_and_continues) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  const auto answer = running.Execute({RequestOf("", {"WRONG", 11, {1}, Floats({1})})});
  CHECK_HAS(answer.error.value_or(""),
            "Failed to process the request(s) for model 'model_0_0', message: ValueError: nothing to do");
  CHECK(answer.responses.empty());
  CHECK(!running.Execute({RequestOf("", kTwoFloats)}).error);
}

CASE(stub_reports_an_exception_although_a_name_of_a_file_is_not_utf8) {
  RunningStub running(ScriptModel());
  CHECK(!running.Initialize());
  const std::string code = R"(exec(compile("1 / 0", "\udcff.py", "exec")))";
  const std::string error = running.Execute({RequestOf(code, kTwoFloats)}).error.value_or("");
  CHECK_HAS(error, "ZeroDivisionError: division by zero");
  CHECK_HAS(error, "File \"\\udcff.py\", line 1");
  CHECK(!running.Execute({RequestOf("", kTwoFloats)}).error);
}

CASE(stub_answers_an_empty_batch) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  const auto answer = running.Execute({});
  CHECK(!answer.error);
  CHECK(answer.responses.empty());
}

CASE(stub_frees_all_memory) {
  RunningStub running(kModel);
  const std::uint64_t before = running.peer.region.FreeBytes();
  CHECK(!running.Initialize());
  running.SkipReport();
  const auto round = [&] {
    running.Execute({RequestOf("", kTwoFloats), RequestOf("error", kTwoFloats)});
    running.Execute({RequestOf("", {"WRONG", 11, {1}, Floats({1})})});
    running.Execute({RequestOf("log", kTwoFloats)});
    running.peer.TakeLog();
  };
  for (int i = 0; i < 50; ++i) round();
  // The stub frees the blocks of a log line some time after the server has acknowledged it.
  CHECK(Soon([&] { return running.peer.region.FreeBytes() == before; }));
  CHECK(running.peer.region.IsConsistent());
}

CASE(stub_grows_the_region_for_a_large_output) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  const auto answer = running.Execute({RequestOf("large", kTwoFloats)});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes.size(), 20000000u);
  CHECK(answer.responses[0].outputs[0].bytes.substr(19999996) == Floats({1.5}));
  CHECK(running.peer.region.Size() > 20000000);
  CHECK(running.peer.region.IsConsistent());
}

CASE(stub_reports_that_the_region_cannot_grow_and_continues) {
  StubProcess::Options options;
  options.file_limit = 64 << 20;  // enough for the memory file with the stub's body
  RunningStub running(kModel, options, Peer::Options{});
  CHECK(!running.Initialize());
  CHECK_HAS(running.Execute({RequestOf("huge", kTwoFloats)}).error.value_or(""), "File too large");
  CHECK(!running.Execute({RequestOf("", kTwoFloats)}).error);
}

CASE(stub_maps_a_region_again_that_the_server_has_grown) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  running.peer.region.Grow(12 << 20);
  const std::string data(8 << 20, '\0');
  const auto answer = running.Execute({RequestOf("", {"IN", 11, {2 << 20}, data})});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes.size(), data.size());
}

CASE(stub_logs_through_the_server_with_file_and_line) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  const LogLine report = running.peer.TakeLog();
  CHECK_HAS(report.message, "\"instance\": \"model_0_0\"");
  CHECK_EQ(report.level, 3);
  running.Execute({RequestOf("log", kTwoFloats)});
  const LogLine line = running.peer.TakeLog();
  CHECK_EQ(line.message, "from the model");
  CHECK_EQ(line.file, running.model);
  CHECK_EQ(line.line, 29);  // of kModel
  CHECK_EQ(line.level, 1);
}

CASE(stub_logs_for_code_whose_file_is_not_utf8_or_that_has_no_lines) {
  RunningStub running(ScriptModel());
  CHECK(!running.Initialize());
  running.SkipReport();
  CHECK(!running
             .Execute({RequestOf(R"py(
code = compile("pb_utils.Logger.log_info('here')", "\udcff.py", "exec")
exec(code)
exec(code.replace(**{"co_linetable" if hasattr(code, "co_linetable") else "co_lnotab": b""}))
)py",
                                 kTwoFloats)})
             .error);
  for (const bool has_lines : {true, false}) {
    const LogLine line = running.peer.TakeLog();
    CHECK_EQ(line.message, "here");
    CHECK_EQ(line.file, "\\udcff.py");
    CHECK(line.line == 1 ||
          (line.line == 0 && !has_lines));  // up to 3.9, code begins with a line in any case
  }
}

CASE(stub_rejects_parameters_that_are_not_utf8_with_their_name) {
  RunningStub running(ScriptModel());
  CHECK(!running.Initialize());
  const std::string code = R"(pb_utils.InferenceResponse(parameters={"\udcff": 2**70}))";
  CHECK_HAS(running.Execute({RequestOf(code, kTwoFloats)}).error.value_or(""), "which '\\udcff' is not");
}

CASE(stub_rejects_a_cuda_pool_with_a_reason) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  CHECK_HAS(running.peer.OfferCudaPool().value_or(""), "there is no CUDA driver");
  CHECK(!running.Execute({RequestOf("", kTwoFloats)}).error);
}
