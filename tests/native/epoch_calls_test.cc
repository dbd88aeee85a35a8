// What a model requests from the server of every epoch, and what the server answers: every field of every
// record.
#include "check.h"
#include "epoch_pair.h"

using namespace envpack;
using namespace envpack::test;

namespace {

constexpr std::uint64_t kLong = 5'000'000'000;  // needs more than 32 bits

}  // namespace

CASE(epoch_queries_cancellation) {
  ForEachEpoch({2310}, [](Pair& pair) {
    const abi::Origin origin{0x7F0011112222, 0x7F0033334444, nullptr};
    for (const bool cancelled : {true, false}) {
      PeerQuery query{};
      CHECK_EQ(pair.Both([&] { return pair.wire->IsCancelled(origin); },
                         [&] { query = pair.peer.TakeCancelQuery(cancelled); }),
               cancelled);
      CHECK_EQ(query.request, origin.request);
      CHECK_EQ(query.response_factory, origin.response_factory);
    }
  });
}

CASE(epoch_writes_log_lines) {
  ForEachEpoch([](Pair& pair) {
    LogLine line;
    pair.Both([&] { pair.wire->Log({abi::LogLevel::kError, "broken", "model.py", 70000}); },
              [&] { line = pair.peer.TakeLog(); });
    CHECK_EQ(line.message, "broken");
    CHECK_EQ(line.file, "model.py");
    CHECK_EQ(line.line, 70000);
    CHECK_EQ(line.level, 2);
  });
}

CASE(epoch_sends_every_field_of_a_request) {
  ForEachEpoch([](Pair& pair) {
    const int release = pair.release();
    abi::Request request;
    const std::string bytes = "four";
    request.id = "id";
    request.correlation_id = UINT64_MAX;
    request.model_name = "other";
    request.model_version = 3;
    request.flags = 6;
    request.timeout_us = kLong;
    request.parameters = R"({"p": 1})";
    request.preferred_memory = {abi::PreferredMemory::Type::kCpu, 5};
    request.trace = {R"({"traceparent": "00-1"})", 0x7F0055556666};
    request.requested_outputs = {"OUT", "MORE"};
    request.inputs = {TensorOf("A", {2, 2}, bytes), TensorOf("B", {}, "x", abi::DataType::kBool)};
    for (const bool decoupled : {false, true}) {
      PeerInferRequest seen;
      pair.Both([&] { return pair.wire->Infer(request, decoupled); },
                [&] { seen = pair.peer.ServeInfer(PeerResponse{}); });
      CHECK_EQ(seen.decoupled, decoupled);
      CHECK_EQ(seen.id, "id");
      CHECK_EQ(seen.correlation_number, UINT64_MAX);
      CHECK_EQ(seen.correlation_text, "");
      CHECK_EQ(seen.model, "other");
      CHECK_EQ(seen.version, 3);
      CHECK_EQ(seen.flags, 6u);
      CHECK_EQ(seen.timeout, release >= 2312 ? kLong : UINT32_MAX);
      CHECK_EQ(seen.parameters, request.parameters);
      CHECK_EQ(seen.preferred_memory, 1);
      CHECK_EQ(seen.preferred_device, 5);
      CHECK_EQ(seen.release_flags, 1u);
      CHECK_EQ(seen.trace, release >= 2308 ? request.trace.server_trace : 0);
      CHECK_EQ(seen.trace_context, release >= 2403 ? request.trace.context : "");
      CHECK((seen.outputs == std::vector<std::string>{"MORE", "OUT"}));
      CHECK_EQ(seen.inputs.size(), 2u);
      CHECK_EQ(seen.inputs[0].name, "A");
      CHECK((seen.inputs[0].dims == std::vector<std::int64_t>{2, 2}));
      CHECK_EQ(seen.inputs[0].dtype, 6);
      CHECK_EQ(seen.inputs[0].bytes, "four");
      CHECK_EQ(seen.inputs[1].name, "B");
      CHECK_EQ(seen.inputs[1].dtype, 1);
      CHECK_EQ(seen.inputs[1].bytes, "x");
    }
  });
}

CASE(epoch_sends_a_request_without_properties) {
  ForEachEpoch([](Pair& pair) {
    PeerInferRequest seen;
    pair.Both([&] { return pair.wire->Infer(abi::Request{}, false); },
              [&] { seen = pair.peer.ServeInfer(PeerResponse{}); });
    CHECK_EQ(seen.version, -1);
    CHECK_EQ(seen.timeout, 0u);
    CHECK_EQ(seen.preferred_memory, 2);  // no preference
    CHECK_EQ(seen.preferred_device, 0);
    CHECK_EQ(seen.trace, 0u);
    CHECK_EQ(seen.parameters, "{}");
    CHECK(seen.inputs.empty() && seen.outputs.empty());
  });
}

CASE(epoch_sends_correlation_ids_that_are_text) {
  ForEachEpoch({2404}, [](Pair& pair) {
    abi::Request request;
    request.correlation_id = "sequence";
    PeerInferRequest seen;
    pair.Both([&] { return pair.wire->Infer(request, false); },
              [&] { seen = pair.peer.ServeInfer(PeerResponse{}); });
    CHECK_EQ(seen.correlation_text, "sequence");
    CHECK_EQ(seen.correlation_number, 0u);
  });
}

CASE(epoch_reads_the_response_to_a_request) {
  ForEachEpoch([](Pair& pair) {
    const std::string bytes("\0\1\2\3", 4);
    PeerResponse sent;
    sent.outputs = {{"OUT", 6, {2, 2}, bytes}, {"MORE", 1, {1}, "x", true}};
    sent.parameters = R"({"b": 2})";
    sent.stream = 0x7F0011112222;
    sent.is_last = false;
    abi::InferResponse got;
    got = pair.Both([&] { return pair.wire->Infer(abi::Request{}, true); },
                    [&] { pair.peer.ServeInfer(sent); });
    CHECK(!got.response.error);
    CHECK_EQ(got.stream, sent.stream);
    CHECK(!got.is_last);
    CHECK_EQ(got.response.outputs.size(), 2u);
    CHECK_EQ(got.response.outputs[0].name, "OUT");
    CHECK_EQ(BytesOf(got.response.outputs[0]), bytes);
    CHECK_EQ(BytesOf(got.response.outputs[1]), "x");
    CHECK_EQ(got.response.parameters, pair.release() >= 2502 ? sent.parameters : "");
    sent.is_last = true;
    CHECK(pair.Both([&] { return pair.wire->Infer(abi::Request{}, false); },
                    [&] { pair.peer.ServeInfer(sent); })
              .is_last);
  });
}

CASE(epoch_reads_an_error_response_to_a_request) {
  ForEachEpoch([](Pair& pair) {
    PeerResponse sent;
    sent.error = "no";
    sent.code = 4;
    sent.stream = 0x5A5A;  // not initialised by servers before 25.04
    const auto got = pair.Both([&] { return pair.wire->Infer(abi::Request{}, false); },
                               [&] { pair.peer.ServeInfer(sent); });
    CHECK_EQ(got.response.error.value().message, "no");
    CHECK(got.response.error->code ==
          (pair.release() >= 2309 ? abi::ErrorCode::kUnavailable : abi::ErrorCode::kInternal));
    CHECK_EQ(got.stream, pair.release() >= 2504 ? 0x5A5Au : 0u);
    CHECK(got.response.outputs.empty());
    sent.has_reason = false;
    const auto silent = pair.Both([&] { return pair.wire->Infer(abi::Request{}, false); },
                                  [&] { pair.peer.ServeInfer(sent); });
    CHECK_EQ(silent.response.error.value().message, "Failed to retrieve the response error.");
  });
}

CASE(epoch_reports_that_the_server_cannot_run_a_request) {
  ForEachEpoch([](Pair& pair) {
    for (const bool has_reason : {true, false}) {
      std::string error;
      pair.Both(
          [&] { error = THROWN(abi::ServerError, pair.wire->Infer(abi::Request{}, false)); },
          [&] {
            pair.peer.RefuseInfer(has_reason ? std::optional<std::string>("no such model") : std::nullopt);
          });
      CHECK_EQ(error, has_reason ? "no such model" : "An error occurred while performing BLS request.");
    }
  });
}

CASE(epoch_reads_further_responses_of_a_stream) {
  ForEachEpoch([](Pair& pair) {
    PeerResponse sent;
    sent.outputs = {{"OUT", 6, {4}, "four"}};
    sent.stream = 42;
    for (const bool is_last : {false, true}) {
      sent.is_last = is_last;
      std::vector<abi::InferResponse> got;
      CHECK(pair.Both(
          [&] {
            return pair.wire->ServeServerMessage([&](abi::ServerMessage message) {
              got.push_back(std::move(std::get<abi::InferResponse>(message)));
            });
          },
          [&] { pair.peer.SendStreamResponse(sent); }));
      CHECK_EQ(got.size(), 1u);
      CHECK_EQ(got[0].stream, 42u);
      CHECK_EQ(got[0].is_last, is_last);
      CHECK_EQ(BytesOf(got[0].response.outputs.at(0)), "four");
    }
  });
}

CASE(epoch_reports_that_a_stream_cannot_continue) {
  ForEachEpoch([](Pair& pair) {
    for (const bool has_reason : {true, false}) {
      std::string error;
      pair.Both(
          [&] {
            pair.wire->ServeServerMessage([&](abi::ServerMessage message) {
              error = std::get<abi::InferResponse>(message).response.error.value().message;
            });
          },
          [&] {
            pair.peer.SendStreamFailure(has_reason ? std::optional<std::string>("gone") : std::nullopt);
          });
      CHECK_EQ(error, has_reason ? "gone" : "the server gives no reason");
    }
  });
}

CASE(epoch_ends_the_messages_of_the_server) {
  ForEachEpoch([](Pair& pair) {
    pair.peer.to_stub_messages.Push(0);
    CHECK(!pair.wire->ServeServerMessage([](abi::ServerMessage) {}));
  });
}

CASE(epoch_ends_and_cancels_streams) {
  ForEachEpoch([](Pair& pair) {
    constexpr abi::StreamId kStream = 0x7F0011112222;
    pair.Both([&] { pair.wire->EndStream(kStream); },
              [&] { CHECK_EQ(pair.peer.TakeStreamCleanup(), kStream); });
    if (pair.release() < 2504) return;
    pair.Both([&] { pair.wire->CancelStream(kStream); },
              [&] { CHECK_EQ(pair.peer.TakeStreamCancel(), kStream); });
  });
}

CASE(epoch_creates_and_deletes_metric_families) {
  ForEachEpoch({2305}, [](Pair& pair) {
    PeerExchange seen;
    const auto address = pair.Both(
        [&] { return pair.wire->CreateMetricFamily({"requests", "their number", abi::MetricKind::kGauge}); },
        [&] { seen = pair.peer.TakeMetrics("MetricFamilyRequestNew"); });
    CHECK_EQ(seen.name, "requests");
    CHECK_EQ(seen.description, "their number");
    CHECK_EQ(seen.kind, 1);
    CHECK_EQ(address, 0x123456789ABCu);
    pair.Both([&] { pair.wire->DeleteMetricFamily(address); },
              [&] { seen = pair.peer.TakeMetrics("MetricFamilyRequestDelete"); });
    CHECK_EQ(seen.family, address);
  });
}

CASE(epoch_creates_changes_and_deletes_metrics) {
  ForEachEpoch({2305}, [](Pair& pair) {
    PeerExchange seen;
    const auto exchange = [&](const char* command, auto call, double value = 0) {
      return pair.Both(call, [&] { seen = pair.peer.TakeMetrics(command, value); });
    };
    constexpr abi::ServerAddress kFamily = 0x7F0011112222;
    const std::vector<double> buckets{1.5, 2, 100};
    const auto metric = exchange(
        "MetricRequestNew", [&] { return pair.wire->CreateMetric(kFamily, {R"({"a": "b"})", buckets}); });
    CHECK_EQ(metric, 0x123456789ABCu);
    CHECK_EQ(seen.family, kFamily);
    CHECK_EQ(seen.labels, R"({"a": "b"})");
    CHECK((seen.buckets == (pair.release() >= 2408 ? buckets : std::vector<double>{})));
    CHECK_EQ(exchange("MetricRequestValue", [&] { return pair.wire->MetricValue(metric); }, 8.5), 8.5);
    CHECK_EQ(seen.metric, metric);
    exchange("MetricRequestIncrement",
             [&] { pair.wire->ChangeMetric(metric, abi::MetricChange::kIncrement, 2.5); });
    CHECK_EQ(seen.metric, metric);
    CHECK_EQ(seen.operation_value, 2.5);
    exchange("MetricRequestSet", [&] { pair.wire->ChangeMetric(metric, abi::MetricChange::kSet, -1); });
    CHECK_EQ(seen.operation_value, -1);
    if (pair.release() >= 2408) {
      exchange("MetricRequestObserve",
               [&] { pair.wire->ChangeMetric(metric, abi::MetricChange::kObserve, 3); });
      CHECK_EQ(seen.operation_value, 3);
      exchange("MetricRequestNew", [&] { pair.wire->CreateMetric(kFamily, {"null", std::nullopt}); });
      CHECK(!seen.has_buckets);
      const std::vector<double> none;
      exchange("MetricRequestNew", [&] { pair.wire->CreateMetric(kFamily, {"null", none}); });
      CHECK(seen.has_buckets);
      CHECK(seen.buckets.empty());
    }
    exchange("MetricRequestDelete", [&] { pair.wire->DeleteMetric(metric); });
    CHECK_EQ(seen.metric, metric);
  });
}

CASE(epoch_reports_the_servers_error_for_a_metric) {
  ForEachEpoch({2305}, [](Pair& pair) {
    std::string error;
    pair.Both([&] { error = THROWN(abi::ServerError, pair.wire->MetricValue(1)); },
              [&] { pair.peer.TakeMetrics("MetricRequestValue", 0, "no such metric"); });
    CHECK_EQ(error, "no such metric");
  });
}

CASE(epoch_controls_other_models) {
  ForEachEpoch({2307}, [](Pair& pair) {
    PeerExchange seen;
    const std::map<std::string, std::string> files{{"file:1/model.py", std::string("a\0b", 3)},
                                                   {"empty", ""}};
    pair.Both([&] { pair.wire->LoadModel({"other", R"({"backend": "python"})", files}); },
              [&] { seen = pair.peer.TakeModels("LoadModelRequest", false); });
    CHECK_EQ(seen.name, "other");
    CHECK_EQ(seen.config, R"({"backend": "python"})");
    CHECK(seen.files == files);
    CHECK_EQ(seen.version, "");
    CHECK(!seen.unload_dependents);
    for (const bool value : {true, false}) {
      pair.Both([&] { pair.wire->UnloadModel("other", value); },
                [&] { seen = pair.peer.TakeModels("UnloadModelRequest", false); });
      CHECK_EQ(seen.name, "other");
      CHECK_EQ(seen.unload_dependents, value);
      CHECK_EQ(pair.Both([&] { return pair.wire->IsModelReady("other", "7"); },
                         [&] { seen = pair.peer.TakeModels("ModelReadinessRequest", value); }),
               value);
      CHECK_EQ(seen.version, "7");
    }
    std::string error;
    pair.Both([&] { error = THROWN(abi::ServerError, pair.wire->UnloadModel("other", false)); },
              [&] { pair.peer.TakeModels("UnloadModelRequest", false, "not today"); });
    CHECK_EQ(error, "not today");
  });
}

// Servers acknowledge no answer that comes too late.
CASE(epoch_gives_up_a_probe_that_the_server_does_not_acknowledge) {
  ForEachEpoch({2603}, [](Pair& pair) {
    const Handle probe = pair.peer.SendProbe();
    pair.Both(
        [&] {
          pair.wire->ServeServerMessage(
              [&](abi::ServerMessage message) { std::get<abi::ReadinessProbe>(message)(true); });
        },
        [] {});
    CHECK(pair.peer.region.As<records::UserModelReadiness>(probe)->is_ready);
  });
}

CASE(epoch_answers_readiness_probes) {
  ForEachEpoch([](Pair& pair) {
    const auto* control = pair.peer.region.As<records::Control>(pair.peer.control);
    CHECK(!control->has_readiness);
    pair.wire->EnableReadinessProbes();
    CHECK_EQ(control->has_readiness, pair.release() >= 2603);
    if (pair.release() < 2603) return;
    const auto probe = [&](const abi::ReadinessAnswer& answer, std::string* error) {
      bool is_ready = false;
      pair.Both(
          [&] {
            pair.wire->ServeServerMessage(
                [&](abi::ServerMessage message) { std::get<abi::ReadinessProbe>(message)(answer); });
          },
          [&] { is_ready = pair.peer.ProbeReadiness(error); });
      return is_ready;
    };
    std::string error;
    CHECK(probe(true, &error));
    CHECK(!probe(false, &error));
    CHECK_EQ(error, "");
    CHECK(!probe(abi::Failure{"cannot say"}, &error));
    CHECK_EQ(error, "cannot say");
  });
}
