// What the server of every epoch sends to a model, and what the model answers: every field of every record.
#include <signal.h>
#include <sys/resource.h>

#include "check.h"
#include "epoch_pair.h"
#include "lock_count.h"

using namespace envpack;
using namespace envpack::test;

namespace {

constexpr std::uint64_t kLong = 5'000'000'000;  // needs more than 32 bits

// Regions cannot grow beyond this size meanwhile.
class RegionLimit {
 public:
  explicit RegionLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
  }
  ~RegionLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  RegionLimit(const RegionLimit&) = delete;
  RegionLimit& operator=(const RegionLimit&) = delete;

 private:
  rlimit before_{};
};

abi::ExecuteCommand ReceiveExecute(abi::Wire& wire) { return std::get<abi::ExecuteCommand>(wire.Receive()); }

}  // namespace

CASE(epoch_reads_every_field_of_a_request) {
  ForEachEpoch([](Pair& pair) {
    const int release = pair.release();
    PeerRequest sent;
    sent.inputs = {
        {"odd", 11, {2, 1}, "12345678"}, {"separate", 5, {1}, "abcdefgh", true}, {"none", 13, {0, 3}, ""}};
    sent.outputs = {"B", "A"};
    sent.id = "seven";
    sent.parameters = R"({"p": 1})";
    sent.address = 0x7F0011112222;
    sent.response_factory = 0x7F0033334444;
    sent.flags = 6;
    sent.timeout = release >= 2312 ? kLong : UINT32_MAX;
    sent.correlation_number = UINT64_MAX;
    sent.trace = 0x7F0055556666;
    sent.trace_context = R"({"traceparent": "00-1"})";
    pair.peer.SendExecute({sent, PeerRequest{}});
    const auto requests = ReceiveExecute(*pair.wire).requests;
    CHECK_EQ(requests.size(), 2u);
    const abi::Request& request = requests[0];
    CHECK_EQ(request.origin.request, sent.address);
    CHECK_EQ(request.origin.response_factory, sent.response_factory);
    CHECK_EQ(request.id, "seven");
    CHECK_EQ(request.model_name, "model");
    CHECK_EQ(request.model_version, 1);
    CHECK_EQ(request.flags, 6u);
    CHECK_EQ(request.timeout_us, sent.timeout);
    CHECK_EQ(request.parameters, sent.parameters);
    CHECK_EQ(std::get<std::uint64_t>(request.correlation_id), UINT64_MAX);
    CHECK_EQ(request.trace.server_trace, release >= 2308 ? sent.trace : 0);
    CHECK_EQ(request.trace.context, release >= 2403 ? sent.trace_context : "");
    CHECK((request.requested_outputs == std::set<std::string>{"A", "B"}));
    CHECK_EQ(request.inputs.size(), 3u);
    CHECK_EQ(request.inputs[0].name, "odd");
    CHECK(request.inputs[0].dtype == abi::DataType::kFp32);
    CHECK((request.inputs[0].dims == std::vector<std::int64_t>{2, 1}));
    CHECK_EQ(BytesOf(request.inputs[0]), "12345678");
    CHECK(request.inputs[1].dtype == abi::DataType::kUint64);
    CHECK_EQ(BytesOf(request.inputs[1]), "abcdefgh");
    CHECK_EQ(request.inputs[2].byte_size, 0u);
    CHECK((request.inputs[2].dims == std::vector<std::int64_t>{0, 3}));
    CHECK(requests[1].inputs.empty() && requests[1].requested_outputs.empty());
    CHECK_EQ(requests[1].timeout_us, 1500000u);
    pair.Both([&] { pair.wire->AnswerExecute(abi::ExecuteFailure{"done"}); },
              [&] { pair.peer.TakeExecute(); });
  });
}

CASE(epoch_reads_a_request_without_a_trace) {
  ForEachEpoch([](Pair& pair) {
    PeerRequest sent;
    sent.has_trace = false;
    pair.peer.SendExecute({sent});
    const abi::Trace trace = ReceiveExecute(*pair.wire).requests.at(0).trace;
    CHECK_EQ(trace.server_trace, 0u);
    CHECK_EQ(trace.context, "");
    pair.Both([&] { pair.wire->AnswerExecute(abi::ExecuteFailure{"done"}); },
              [&] { pair.peer.TakeExecute(); });
  });
}

CASE(epoch_reads_correlation_ids_that_are_text) {
  ForEachEpoch({2404}, [](Pair& pair) {
    PeerRequest sent;
    sent.correlation_text = "sequence";
    sent.correlation_number = 5;
    pair.peer.SendExecute({sent});
    CHECK_EQ(std::get<std::string>(ReceiveExecute(*pair.wire).requests.at(0).correlation_id), "sequence");
    pair.Both([&] { pair.wire->AnswerExecute(abi::ExecuteFailure{"done"}); },
              [&] { pair.peer.TakeExecute(); });
  });
}

CASE(epoch_sets_release_flags_of_a_request) {
  ForEachEpoch([](Pair& pair) {
    const Handle message = pair.peer.SendExecute({PeerRequest{}});
    const Handle batch = pair.peer.region.As<records::Message>(message)->args;
    const Handle handle = *pair.peer.region.As<Handle>(batch, pair.peer.layouts.SizeOf("RequestBatch"));
    const Fields record(pair.peer.region.At(handle), pair.peer.layouts.Of("Request"));
    {
      const auto command = ReceiveExecute(*pair.wire);
      pair.wire->SetReleaseFlags(command.requests.at(0).origin, abi::kReleaseReschedule);
    }
    if (pair.release() >= 2311) CHECK_EQ(record.Get<std::uint32_t>("release_flags"), 2u);
    pair.Both([&] { pair.wire->AnswerExecute(abi::ExecuteFailure{"done"}); },
              [&] { pair.peer.TakeExecute(); });
  });
}

CASE(epoch_answers_a_batch) {
  ForEachEpoch([](Pair& pair) {
    const bool by_sender = pair.release() >= 2406 && pair.release() < 2410;
    const std::string bytes("\0\1\2\3\4\5", 6);
    PeerRequest echo;
    echo.inputs = {{"IN", 6, {2, 3}, bytes}, {"SEPARATE", 6, {4}, "abcd", true}};
    PeerRequest silent, failing;
    echo.response_factory = 101;
    silent.response_factory = 102;
    failing.response_factory = 103;
    pair.peer.SendExecute({echo, silent, failing});
    ExecuteAnswer answer;
    pair.Both(
        [&] {
          const auto requests = ReceiveExecute(*pair.wire).requests;
          abi::Response first, last;
          first.outputs = requests.at(0).inputs;
          first.outputs.push_back(TensorOf("NEW", {}, "x", abi::DataType::kBool));
          first.parameters = R"({"a": 1})";
          last.outputs = {TensorOf("IGNORED", {1}, "x")};
          last.error = abi::Error{"gone", abi::ErrorCode::kNotFound};
          pair.wire->AnswerExecute(std::vector<std::optional<abi::Response>>{first, std::nullopt, last});
        },
        [&] { answer = pair.peer.TakeExecute(); });
    CHECK(!answer.error);
    CHECK_EQ(answer.responses.size(), by_sender ? 2u : 3u);
    const PeerResponse& first = answer.responses.front();
    CHECK(!first.error);
    CHECK(first.is_last);
    CHECK_EQ(first.outputs.size(), 3u);
    CHECK_EQ(first.outputs[0].name, "IN");
    CHECK_EQ(first.outputs[0].dtype, 6);
    CHECK((first.outputs[0].dims == std::vector<std::int64_t>{2, 3}));
    CHECK_EQ(first.outputs[0].bytes, bytes);
    CHECK(!first.outputs[0].separate);
    CHECK_EQ(first.outputs[1].bytes, "abcd");
    CHECK(first.outputs[1].separate);
    CHECK_EQ(first.outputs[2].name, "NEW");
    CHECK_EQ(first.outputs[2].dtype, 1);
    CHECK(first.outputs[2].dims.empty());
    CHECK_EQ(first.outputs[2].bytes, "x");
    if (pair.release() >= 2502) CHECK_EQ(first.parameters, R"({"a": 1})");
    if (!by_sender) CHECK(answer.responses[1].is_none);
    const PeerResponse& last = answer.responses.back();
    CHECK_EQ(last.error.value_or(""), "gone");
    if (pair.release() >= 2309) CHECK_EQ(last.code, 2);
    CHECK(last.outputs.empty());
    CHECK(!answer.factories_deleted);
  });
}

CASE(epoch_answers_with_a_failure) {
  ForEachEpoch([](Pair& pair) {
    for (const bool deleted : {false, true}) {
      pair.peer.SendExecute({PeerRequest{}});
      ExecuteAnswer answer;
      pair.Both(
          [&] {
            ReceiveExecute(*pair.wire);
            pair.wire->AnswerExecute(abi::ExecuteFailure{"no weights", deleted});
          },
          [&] { answer = pair.peer.TakeExecute(); });
      CHECK_EQ(answer.error.value_or(""), "no weights");
      CHECK(answer.responses.empty());
      CHECK_EQ(answer.factories_deleted, deleted && pair.release() >= 2410);
    }
    CHECK_EQ(pair.wire->FailureDeletesFactories(), pair.release() < 2312 || pair.release() >= 2410);
  });
}

CASE(epoch_answers_a_batch_although_the_server_refuses_a_response) {
  ForEachEpoch([](Pair& pair) {
    if (pair.release() < 2406 || pair.release() >= 2410) return;  // the answer contains the responses
    pair.peer.SendExecute({PeerRequest{}, PeerRequest{}});
    ExecuteAnswer answer;
    pair.Both(
        [&] {
          ReceiveExecute(*pair.wire);
          const std::optional<abi::Response> response = ResponseOf({TensorOf("OUT", {1}, "x")});
          pair.wire->AnswerExecute(std::vector<std::optional<abi::Response>>{response, response});
        },
        [&] {
          pair.peer.TakeSent("the client has gone");
          answer = pair.peer.TakeExecute();
        });
    CHECK(!answer.error);
    CHECK_EQ(answer.responses.size(), 1u);
  });
}

CASE(epoch_reports_that_a_response_does_not_fit_into_the_region) {
  const RegionLimit limit(8 << 20);
  ForEachEpoch([](Pair& pair) {
    pair.peer.SendExecute({PeerRequest{}});
    ExecuteAnswer answer;
    pair.Both(
        [&] {
          ReceiveExecute(*pair.wire);
          const std::vector<std::optional<abi::Response>> responses{
              ResponseOf({TensorOf("OUT", {16 << 20}, std::string(16 << 20, 'x'))})};
          try {
            pair.wire->AnswerExecute(responses);
          } catch (const abi::RegionFull& error) {
            pair.wire->AnswerExecute(abi::ExecuteFailure{error.what()});
          }
        },
        [&] { answer = pair.peer.TakeExecute(); });
    const bool by_sender = pair.release() >= 2406 && pair.release() < 2410;
    CHECK_HAS((by_sender ? answer.responses.at(0).error : answer.error).value_or(""), "File too large");
  });
}

CASE(epoch_sends_responses_one_by_one) {
  ForEachEpoch({0, true}, [](Pair& pair) {
    const bool deletes = pair.release() >= 2312 && pair.release() < 2410;
    CHECK(pair.wire->Decoupled());
    const abi::Origin origin{0x7F0011112222, 0x7F0033334444, nullptr};
    const std::string bytes = "four";
    for (const std::uint32_t flags : {0u, abi::kResponseFinal}) {
      SentResponse sent;
      pair.Both([&] { pair.wire->Send(origin, ResponseOf({TensorOf("OUT", {4}, bytes)}), flags); },
                [&] {
                  sent = pair.peer.TakeSent();
                  if (deletes && flags != 0)
                    CHECK_EQ(pair.peer.TakeFactoryCleanup(), origin.response_factory);
                });
      CHECK_EQ(sent.flags, flags);
      CHECK_EQ(sent.request, origin.request);
      CHECK_EQ(sent.response_factory, origin.response_factory);
      CHECK_EQ(sent.response.value().outputs.at(0).bytes, "four");
    }
    SentResponse end;
    pair.Both([&] { pair.wire->Send(origin, std::nullopt, abi::kResponseFinal); },
              [&] {
                end = pair.peer.TakeSent();
                if (deletes) pair.peer.TakeFactoryCleanup();
              });
    CHECK(!end.response);
    CHECK_EQ(end.flags, 1u);
    CHECK(!pair.peer.from_stub_requests.TryPop(0));
    CHECK(!pair.peer.from_stub_answers.TryPop(0));
  });
}

CASE(epoch_reports_the_servers_error_for_a_response) {
  ForEachEpoch([](Pair& pair) {
    const abi::Origin origin{1, 0, nullptr};
    std::string error;
    pair.Both(
        [&] {
          error = THROWN(abi::ServerError, pair.wire->Send(origin, ResponseOf({TensorOf("OUT", {1}, "x")}),
                                                           abi::kResponseFinal));
        },
        [&] { pair.peer.TakeSent("the client has gone"); });
    CHECK_EQ(error, "the client has gone");
  });
}

CASE(epoch_deletes_the_response_factory_of_an_unanswered_request) {
  ForEachEpoch([](Pair& pair) {
    const abi::Origin origin{1, 0x7F0033334444, nullptr};
    pair.Both([&] { pair.wire->DeleteResponseFactory(origin); },
              [&] {
                if (pair.peer.layouts.HasCommand("ResponseFactoryCleanup"))
                  CHECK_EQ(pair.peer.TakeFactoryCleanup(), origin.response_factory);
              });
    CHECK(!pair.peer.from_stub_requests.TryPop(0));
  });
}

// The server locks the region for its own requests meanwhile.
CASE(epoch_locks_the_region_once_for_each_message) {
  ForEachEpoch([](Pair& pair) {
    if (pair.release() >= 2406 && pair.release() < 2410) return;  // each response is a message
    PeerRequest sent;
    sent.inputs = {
        {"a", 11, {2}, "12345678"}, {"b", 11, {2}, "12345678"}, {"separate", 5, {1}, "abcdefgh", true}};
    sent.outputs = {"A", "B"};
    pair.peer.SendExecute({sent, sent, sent});
    const int before = LocksOfThisThread();
    abi::ExecuteCommand command = ReceiveExecute(*pair.wire);
    CHECK_EQ(LocksOfThisThread() - before, 2);  // the queue and the region

    const std::string large(100'000, 'x');
    const auto answer = [&] {
      const int before_answer = LocksOfThisThread();
      const abi::ReleaseTogether together;
      const auto response = ResponseOf({TensorOf("A", {2}, "12"), TensorOf("B", {100'000}, large)});
      pair.wire->AnswerExecute(std::vector<std::optional<abi::Response>>(3, response));
      command = {};
      return LocksOfThisThread() - before_answer;
    };
    // The region, the queues of the answer and of its acknowledgement.
    const int locks = pair.Both(answer, [&] { CHECK_EQ(pair.peer.TakeExecute().responses.size(), 3u); });
    CHECK_EQ(locks, 3);
  });
}
