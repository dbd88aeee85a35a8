// Requests that the model makes itself ("BLS"), with one response or a stream of them; and its metrics.
#pragma once

#include <pthread.h>

#include "abi/attempt.h"
#include "abi/epoch_wire.h"
#include "abi/readiness_question.h"
#include "abi/release_on_exit.h"
#include "shm/sync.h"

namespace envpack::abi {

// The server has no flag by which it says that the answer is there, only the condition. What it does set
// before it starts is `response_handle`, so a wake-up without that is not meant. If there are tensors on a
// GPU, it wakes us once before the answer, with buffers for them.
template <Release kEpoch>
InferResponse EpochWire<kEpoch>::Infer(const Request& request, bool decoupled) {
  using Batch = records::RequestBatch<kEpoch>;
  Writer<kEpoch> writer(region_);
  const Handle handle = writer.WriteRequest(request, decoupled);
  const shm::Block& block = writer.Make(sizeof(Batch) + sizeof(Handle));
  auto* batch = block.As<Batch>();
  *batch = Batch{};
  batch->batch_size = 1;
  *block.As<Handle>(sizeof(Batch)) = handle;
  const Call call =
      MakeCall(writer, decoupled ? CommandKind::kInferStreamExecRequest : CommandKind::kInferExecRequest,
               block.handle());
  const shm::Block message = region_.Load(call.message);
  const auto* answer = message.As<records::Message>();

  shm::Lock lock(call.mutex);
  own_requests().Push(call.message);
  do lock.Wait(call.condition);
  while (answer->response_handle == 0);
  std::optional<std::string> failure;
  if (batch->gpu_buffers != 0) {
    failure = Attempt([&] { FillBuffers(ReadBatchBuffers(*batch), writer.device_tensors()); });
    shm::Notify(call.condition);
    lock.Wait(call.condition);
  }
  const ReleaseOnExit release(call.condition);
  if (failure) throw ServerFailed(*failure);
  return TakeInferResponse(answer->response_handle);
}

// Reads the answer out of the message that the server has made for it.
template <Release kEpoch>
InferResponse EpochWire<kEpoch>::TakeInferResponse(Handle answer) {
  const shm::Block message = region_.Load(answer);
  const shm::Block block = region_.Load(message.As<records::Message>()->args);
  const auto* batch = block.As<BatchRecord>();
  if (batch->has_error) {
    throw ServerFailed(plain_reader_.ErrorText(batch->is_error_set, batch->error,
                                               "An error occurred while performing BLS request."));
  }
  return reader_.ReadInferResponse(*block.As<Handle>(sizeof(BatchRecord)));
}

// The server's thread that runs the model's callback waits until the response has been read.
template <Release kEpoch>
InferResponse EpochWire<kEpoch>::TakeStreamResponse(const records::Message& message) {
  const shm::Block block = region_.Load(message.args);
  auto* batch = block.As<BatchRecord>();
  const shm::Block mutex = region_.Load(message.response_mutex);
  const shm::Block condition = region_.Load(message.response_cond);
  InferResponse response;
  if (batch->has_error) {
    response.response.error = Error{plain_reader_.ErrorText(batch->is_error_set, batch->error)};
  } else {
    response = reader_.ReadInferResponse(*block.As<Handle>(sizeof(BatchRecord)));
  }
  shm::Lock lock(mutex.As<pthread_mutex_t>());
  batch->waiting_on_stub = true;
  shm::Notify(condition.As<pthread_cond_t>());
  if constexpr (T::kStreamsAreAcknowledgedTwice) {
    while (batch->waiting_on_stub) lock.Wait(condition.As<pthread_cond_t>());
  }
  return response;
}

template <Release kEpoch>
bool EpochWire<kEpoch>::ServeUnasked(UnaskedListener& listener) {
  const Handle handle = unasked_.Pop();
  if (handle == records::kDummy) return false;
  const shm::Block block = region_.Load(handle);
  const records::Message message = *block.As<records::Message>();
  const CommandKind kind =
      T::kStreamsCarryCommands ? numbers_.KindOf(message.command) : CommandKind::kInferStreamExecResponse;
  if (kind == CommandKind::kCudaPoolInitializeRequest) {
    AttachPool(message);
  } else if (kind == CommandKind::kInferStreamExecResponse) {
    listener.Take(TakeStreamResponse(message));
  } else if (kind == CommandKind::kUserModelReadinessRequest) {
    listener.Take(std::make_unique<SharedReadinessQuestion>(region_, message));
  }
  return true;
}

template <Release kEpoch>
records::CustomMetrics EpochWire<kEpoch>::AskMetric(CommandKind kind, const records::Metric<kEpoch>& record,
                                                    const Metric& metric) {
  Writer<kEpoch> writer(region_);
  records::Metric<kEpoch> whole = record;
  whole.labels = writer.WriteString(metric.labels);
  if constexpr (T::kMetricsHaveBuckets) {
    whole.buckets = metric.buckets.empty() ? 0 : writer.WriteDoubles(metric.buckets);
  }
  const Handle handle = writer.Put(whole).handle();
  return AskMetrics(writer, kind, handle);
}

template <Release kEpoch>
ServerAddress EpochWire<kEpoch>::CreateMetric(ServerAddress family, const Metric& metric) {
  records::Metric<kEpoch> record{};
  record.metric_family_address = family;
  return AskMetric(CommandKind::kMetricRequestNew, record, metric).address;
}

template <Release kEpoch>
void EpochWire<kEpoch>::DeleteMetric(ServerAddress metric) {
  records::Metric<kEpoch> record{};
  record.metric_address = metric;
  AskMetric(CommandKind::kMetricRequestDelete, record, Metric{});
}

template <Release kEpoch>
void EpochWire<kEpoch>::ChangeMetric(ServerAddress metric, MetricChange change, double value) {
  records::Metric<kEpoch> record{};
  record.metric_address = metric;
  record.operation_value = value;
  const CommandKind kind = change == MetricChange::kIncrement ? CommandKind::kMetricRequestIncrement
                           : change == MetricChange::kSet     ? CommandKind::kMetricRequestSet
                                                              : CommandKind::kMetricRequestObserve;
  AskMetric(kind, record, Metric{});
}

template <Release kEpoch>
double EpochWire<kEpoch>::MetricValue(ServerAddress metric) {
  records::Metric<kEpoch> record{};
  record.metric_address = metric;
  return AskMetric(CommandKind::kMetricRequestValue, record, Metric{}).value;
}

}  // namespace envpack::abi
