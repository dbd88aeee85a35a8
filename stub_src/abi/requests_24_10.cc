// What the stub asks the server for by itself, in 24.10: everything that travels on the stub_to_parent_mq
// queue.
#include <pthread.h>

#include <optional>
#include <string>
#include <vector>

#include "abi/wire_24_10.h"
#include "shm/sync.h"

namespace envpack::abi::r24_10 {

// The two-way exchange of most of the stub's own requests: hand the record over, wait until the server has
// filled it, let `finish` copy what it says, and only then release the server. The server's thread is woken
// by each step, so it is handed over and released without the mutex: it would only wake to wait for that.
template <typename Record, typename Finish>
void Wire24_10::Exchange(Writer& writer, CommandNumber number, const shm::Block& block, Finish finish) {
  auto* record = block.As<Record>();
  shm::InitMutex(&record->mutex);
  shm::InitCondition(&record->condition);
  const shm::Block& message = writer.Make(sizeof(Message));
  FillMessage(message.As<Message>(), number, block.handle());

  to_server_.Push(message.handle());
  {
    shm::Lock lock(&record->mutex);
    while (!record->waiting_on_stub) lock.Wait(&record->condition);
    finish(*record);
    record->waiting_on_stub = false;
  }
  shm::Notify(&record->condition);
}

std::string Wire24_10::ErrorText(bool is_set, Handle text, const char* otherwise) {
  return is_set ? reader_.ReadString(text) : std::string(otherwise);
}

void Wire24_10::Log(const LogLine& line) {
  Writer writer(region_);
  r24_10::Log record{};
  record.file = writer.WriteString(line.file);
  record.line = line.line;
  record.message = writer.WriteString(line.message);
  record.level = static_cast<std::int32_t>(line.level);
  const shm::Block& block = writer.Make(sizeof(record));
  *block.As<r24_10::Log>() = record;
  Exchange<r24_10::Log>(writer, CommandNumber::kLogRequest, block, [](const r24_10::Log&) {});
}

bool Wire24_10::IsCancelled(const Origin& origin) {
  Writer writer(region_);
  r24_10::IsCancelled record{};
  record.response_factory_address = origin.response_factory;
  record.request_address = origin.request;
  const shm::Block& block = writer.Make(sizeof(record));
  *block.As<r24_10::IsCancelled>() = record;
  bool cancelled = false;
  Exchange<r24_10::IsCancelled>(writer, CommandNumber::kIsRequestCancelled, block,
                                [&](const r24_10::IsCancelled& answer) { cancelled = answer.is_cancelled; });
  return cancelled;
}

void Wire24_10::SetReleaseFlags(const Origin& origin, std::uint32_t flags) {
  static_cast<const shm::Block*>(origin.record.get())->As<Request>()->release_flags = flags;
}

// Both sides take turns: the server sends the response, says how it went, and waits until we have read that.
// If the response has tensors on a GPU, there is a turn before, in which the server says where it wants them.
void Wire24_10::Send(const Origin& origin, const std::optional<abi::Response>& response,
                     std::uint32_t flags) {
  Writer writer(region_);
  ResponseSend record{};
  record.request_address = origin.request;
  record.response_factory_address = origin.response_factory;
  record.response = response ? writer.WriteResponse(*response) : 0;
  record.flags = flags;
  const shm::Block& block = writer.MakeAligned(sizeof(record));
  auto* shared = block.As<ResponseSend>();
  *shared = record;
  shm::InitMutex(&shared->mutex);
  shm::InitCondition(&shared->condition);
  const shm::Block& message = writer.Make(sizeof(Message));
  FillMessage(message.As<Message>(), CommandNumber::kResponseSend, block.handle());

  std::optional<std::string> failure;
  to_server_.Push(message.handle());
  {
    shm::Lock lock(&shared->mutex);
    const auto wait = [&] {
      while (!shared->is_stub_turn) lock.Wait(&shared->condition);
    };
    wait();
    if (!writer.device_tensors().empty() && !shared->has_error) {
      failure = Attempt([&] { FillBuffers(shared->gpu_buffers, writer.device_tensors()); });
      shared->is_stub_turn = false;
      shm::Notify(&shared->condition);
      wait();
    }
    if (shared->has_error) {
      failure = ErrorText(shared->is_error_set, shared->error, "An error occurred while sending a response.");
    }
    shared->is_stub_turn = false;
  }
  shm::Notify(&shared->condition);
  if (failure) throw ServerFailed(*failure);
}

Wire24_10::Call Wire24_10::MakeCall(Writer& writer, CommandNumber number, Handle args) {
  const shm::Block& mutex = writer.MakeAligned(sizeof(pthread_mutex_t));
  const shm::Block& condition = writer.MakeAligned(sizeof(pthread_cond_t));
  shm::InitMutex(mutex.As<pthread_mutex_t>());
  shm::InitCondition(condition.As<pthread_cond_t>());
  const shm::Block& block = writer.Make(sizeof(Message));
  auto* message = block.As<Message>();
  FillMessage(message, number, args);
  message->inline_response = true;
  message->response_mutex = mutex.handle();
  message->response_cond = condition.handle();
  return {block.handle(), mutex.As<pthread_mutex_t>(), condition.As<pthread_cond_t>()};
}

// One-way: the server only says that it has seen it.
void Wire24_10::SendCleanup(CommandNumber number, std::int64_t id) {
  Writer writer(region_);
  const shm::Block& block = writer.Make(sizeof(Cleanup));
  auto* cleanup = block.As<Cleanup>();
  *cleanup = Cleanup{};
  cleanup->id = id;
  const Call call = MakeCall(writer, number, block.handle());
  shm::Lock lock(call.mutex);
  to_server_.Push(call.message);
  while (!cleanup->waiting_on_stub) lock.Wait(call.condition);
}

void Wire24_10::DropResponseFactory(const Origin& origin) {
  SendCleanup(CommandNumber::kResponseFactoryCleanup, origin.response_factory);
}

void Wire24_10::EndStream(StreamId stream) {
  SendCleanup(CommandNumber::kStreamCleanup, static_cast<std::int64_t>(stream));
}

// A MetricFamily or Metric record travels in this envelope. Returns a copy of it as the server has filled it.
CustomMetrics Wire24_10::AskMetrics(Writer& writer, CommandNumber number, Handle message) {
  const shm::Block& block = writer.Make(sizeof(CustomMetrics));
  CustomMetrics record{};
  record.message = message;
  *block.As<CustomMetrics>() = record;
  std::optional<std::string> failure;
  Exchange<CustomMetrics>(writer, number, block, [&](const CustomMetrics& answer) {
    record = answer;
    if (answer.has_error) failure = ErrorText(answer.is_error_set, answer.error);
  });
  if (failure) throw ServerFailed(*failure);
  return record;
}

CustomMetrics Wire24_10::AskMetric(CommandNumber number, const Metric& record, const abi::Metric& metric) {
  Writer writer(region_);
  Metric whole = record;
  whole.labels = writer.WriteString(metric.labels);
  whole.buckets = metric.buckets.empty() ? 0 : writer.WriteDoubles(metric.buckets);
  const shm::Block& block = writer.Make(sizeof(whole));
  *block.As<Metric>() = whole;
  return AskMetrics(writer, number, block.handle());
}

ServerAddress Wire24_10::CreateMetricFamily(const abi::MetricFamily& family) {
  Writer writer(region_);
  MetricFamily record{};
  record.name = writer.WriteString(family.name);
  record.description = writer.WriteString(family.description);
  record.kind = static_cast<std::int32_t>(family.kind);
  const shm::Block& block = writer.Make(sizeof(record));
  *block.As<MetricFamily>() = record;
  return AskMetrics(writer, CommandNumber::kMetricFamilyRequestNew, block.handle()).address;
}

void Wire24_10::DeleteMetricFamily(ServerAddress family) {
  Writer writer(region_);
  MetricFamily record{};
  record.name = record.description = writer.WriteString("");  // the server reads them whatever it is asked
  record.metric_family_address = family;
  const shm::Block& block = writer.Make(sizeof(record));
  *block.As<MetricFamily>() = record;
  AskMetrics(writer, CommandNumber::kMetricFamilyRequestDelete, block.handle());
}

ServerAddress Wire24_10::CreateMetric(ServerAddress family, const abi::Metric& metric) {
  Metric record{};
  record.metric_family_address = family;
  return AskMetric(CommandNumber::kMetricRequestNew, record, metric).address;
}

void Wire24_10::DeleteMetric(ServerAddress metric) {
  Metric record{};
  record.metric_address = metric;
  AskMetric(CommandNumber::kMetricRequestDelete, record, abi::Metric{});
}

void Wire24_10::ChangeMetric(ServerAddress metric, MetricChange change, double value) {
  Metric record{};
  record.metric_address = metric;
  record.operation_value = value;
  const CommandNumber number = change == MetricChange::kIncrement ? CommandNumber::kMetricRequestIncrement
                               : change == MetricChange::kSet     ? CommandNumber::kMetricRequestSet
                                                                  : CommandNumber::kMetricRequestObserve;
  AskMetric(number, record, abi::Metric{});
}

double Wire24_10::MetricValue(ServerAddress metric) {
  Metric record{};
  record.metric_address = metric;
  return AskMetric(CommandNumber::kMetricRequestValue, record, abi::Metric{}).value;
}

bool Wire24_10::AskModels(CommandNumber number, const ModelToLoad& model, const std::string& version,
                          bool unload_dependents) {
  Writer writer(region_);
  ModelLoaderRequest request{};
  request.name = writer.WriteString(model.name);
  request.version = writer.WriteString(version);
  request.unload_dependents = unload_dependents;
  request.config = writer.WriteString(model.config);
  request.files = writer.WriteDict(model.files);
  const shm::Block& request_block = writer.Make(sizeof(request));
  *request_block.As<ModelLoaderRequest>() = request;
  ModelLoader record{};
  record.message = request_block.handle();
  const shm::Block& block = writer.Make(sizeof(record));
  *block.As<ModelLoader>() = record;
  std::optional<std::string> failure;
  Exchange<ModelLoader>(writer, number, block, [&](const ModelLoader& answer) {
    record = answer;
    if (answer.has_error) failure = ErrorText(answer.is_error_set, answer.error);
  });
  if (failure) throw ServerFailed(*failure);
  return record.is_model_ready;
}

void Wire24_10::LoadModel(const ModelToLoad& model) {
  AskModels(CommandNumber::kLoadModelRequest, model, "", false);
}

void Wire24_10::UnloadModel(const std::string& name, bool unload_dependents) {
  AskModels(CommandNumber::kUnloadModelRequest, ModelToLoad{name, "", {}}, "", unload_dependents);
}

bool Wire24_10::IsModelReady(const std::string& name, const std::string& version) {
  return AskModels(CommandNumber::kModelReadinessRequest, ModelToLoad{name, "", {}}, version, false);
}

}  // namespace envpack::abi::r24_10
