// How the real stub answers batches of requests.
#include <unistd.h>

#include "check.h"
#include "started.h"

using namespace envpack::test;

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
  options.file_limit = 64 << 20;  // room for the memory file that the stub unpacks itself into
  Started started(kModel, options, Peer::Options{});
  CHECK(!started.Initialize());
  CHECK_HAS(started.Execute({Ask("huge", kTwoFloats)}).error.value_or(""), "--shm-size");
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
  CHECK_EQ(line.line, 29);  // of kModel
  CHECK_EQ(line.level, 1);
}

CASE(stub_refuses_a_cuda_pool_with_a_reason) {
  Started started(kModel);
  CHECK(!started.Initialize());
  CHECK_HAS(started.peer.OfferCudaPool().value_or(""), "there is no CUDA driver");
  CHECK(!started.Execute({Ask("", kTwoFloats)}).error);
}
