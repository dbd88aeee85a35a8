// Requests of the stub, served the way the server does, and messages that the server sends without a request.
#include <pthread.h>
#include <unistd.h>

#include <cstring>

#include "check.h"
#include "peer.h"
#include "peer_sync.h"

namespace envpack::test {

Handle Peer::TakeRequest(PeerQueue& queue, const std::string& command) {
  const Handle message = queue.Pop();
  region.AddReference(message);
  CHECK_EQ(region.As<records::Message>(message)->command, layouts.NumberOf(command));
  region.AddReference(region.As<records::Message>(message)->args);
  return message;
}

Handle Peer::TakeRequest(const std::string& command) { return TakeRequest(from_stub_requests, command); }

bool Peer::NextRequestIs(const std::string& command) {
  const Handle message = from_stub_requests.Pop();
  from_stub_requests.PutBack(message);
  return region.As<records::Message>(message)->command == layouts.NumberOf(command);
}

bool Peer::AwaitsInfer() {
  const Handle message = request_queue().Pop();
  request_queue().PutBack(message);
  const auto command = region.As<records::Message>(message)->command;
  return command == layouts.NumberOf("InferExecRequest") ||
         command == layouts.NumberOf("InferStreamExecRequest");
}

void Peer::ReleaseRequest(Handle message) {
  region.Release(region.As<records::Message>(message)->args);
  region.Release(message);
}

namespace {

// The server's part of a two-way exchange after it has filled the record.
template <typename Record>
void Finish(Record* record) {
  pthread_mutex_lock(&record->mutex);
  record->waiting_on_stub = true;
  pthread_cond_broadcast(&record->condition);
  WaitUntil(&record->waiting_on_stub, false, &record->mutex, &record->condition);
  pthread_mutex_unlock(&record->mutex);
}

template <typename Record>
void SetError(Record* record, Handle text) {
  record->has_error = record->is_error_set = true;
  record->error = text;
}

}  // namespace

// The stub may not wait yet, so once is not enough.
void Peer::WakeSpuriously(pthread_mutex_t* mutex, pthread_cond_t* condition) {
  for (int i = 0; wakes_spuriously_ && i < 4; ++i) {
    pthread_mutex_lock(mutex);
    pthread_cond_broadcast(condition);
    pthread_mutex_unlock(mutex);
    usleep(500);
  }
}

LogLine Peer::TakeLog() {
  const Handle message = TakeRequest("LogRequest");
  auto* log = region.As<records::Log>(region.As<records::Message>(message)->args);
  const LogLine line{ReadString(log->file), log->line, ReadString(log->message), log->level};
  WakeSpuriously(&log->mutex, &log->condition);
  Finish(log);
  ReleaseRequest(message);
  return line;
}

SentResponse Peer::TakeSent(const std::string& error, Handle buffers) {
  return ServeSent(TakeRequest(request_queue(), "ResponseSend"), error, buffers);
}

SentResponse Peer::ServeSent(Handle message, const std::string& error, Handle buffers) {
  const Fields record = FieldsOf("ResponseSend", region.As<records::Message>(message)->args);
  SentResponse sent{std::nullopt, record.Get<std::uint32_t>("flags"),
                    record.Get<std::int64_t>("response_factory_address"),
                    record.Get<std::int64_t>("request_address")};
  const auto response = record.Get<Handle>("response");
  if (response != 0) sent.response = ReadResponse(response);
  auto* mutex = record.Of<pthread_mutex_t>("mutex");
  auto* condition = record.Of<pthread_cond_t>("condition");
  auto* turn = record.Of<records::Flag>("is_stub_turn");
  WakeSpuriously(mutex, condition);
  pthread_mutex_lock(mutex);
  if (buffers != 0) {
    record.Put("gpu_buffers", buffers);
    *turn = true;
    pthread_cond_broadcast(condition);
    WaitUntil(turn, false, mutex, condition);
  }
  if (!error.empty()) {
    record.Put("has_error", true);
    record.Put("is_error_set", true);
    record.Put("error", MakeString(error));
  }
  *turn = true;
  pthread_cond_broadcast(condition);
  WaitUntil(turn, false, mutex, condition);
  pthread_mutex_unlock(mutex);
  ReleaseRequest(message);
  return sent;
}

std::int64_t Peer::TakeFactoryCleanup() { return TakeCleanup("ResponseFactoryCleanup"); }

std::uint64_t Peer::TakeStreamCleanup() { return static_cast<std::uint64_t>(TakeCleanup("StreamCleanup")); }

std::int64_t Peer::TakeCleanup(const std::string& command) {
  const Handle message = TakeRequest(command);
  const auto* record = region.As<records::Message>(message);
  CHECK(record->inline_response);
  auto* cleanup = region.As<records::Cleanup>(record->args);
  const std::int64_t id = cleanup->id;
  auto* mutex = region.As<pthread_mutex_t>(record->response_mutex);
  auto* condition = region.As<pthread_cond_t>(record->response_cond);
  region.AddReference(record->response_mutex);
  region.AddReference(record->response_cond);
  WakeSpuriously(mutex, condition);
  CHECK_EQ(region.References(message), 2u);  // the stub keeps its own until the server has acknowledged
  pthread_mutex_lock(mutex);
  cleanup->waiting_on_stub = true;
  pthread_cond_broadcast(condition);
  pthread_mutex_unlock(mutex);
  region.Release(record->response_mutex);
  region.Release(record->response_cond);
  ReleaseRequest(message);
  return id;
}

PeerExchange Peer::TakeMetrics(const std::string& command, double value, const std::string& error) {
  const Handle message = TakeRequest(command);
  auto* record = region.As<records::CustomMetrics>(region.As<records::Message>(message)->args);
  PeerExchange seen{};
  if (Has(command, "Family")) {
    const auto* family = region.As<records::MetricFamily>(record->message);
    seen.name = ReadString(family->name);
    seen.description = ReadString(family->description);
    seen.kind = family->kind;
    seen.family = family->metric_family_address;
  } else {
    const Fields metric = FieldsOf("Metric", record->message);
    seen.labels = ReadString(metric.Get<Handle>("labels"));
    seen.operation_value = metric.Get<double>("operation_value");
    const Handle buckets = metric.Has("buckets") ? metric.Get<Handle>("buckets") : 0;
    seen.has_buckets = buckets != 0;
    if (seen.has_buckets) {
      const Fields memory = FieldsOf("Memory", buckets);
      const auto size = memory.Get<std::uint64_t>("byte_size");
      seen.buckets.resize(size / sizeof(double));
      Copy(seen.buckets.data(), region.At(buckets, memory.size()), size);
    }
    seen.metric = metric.Get<std::uint64_t>("metric_address");
    seen.family = metric.Get<std::uint64_t>("metric_family_address");
  }
  WakeSpuriously(&record->mutex, &record->condition);
  record->value = value;
  record->address = 0x123456789ABC;
  if (!error.empty()) SetError(record, MakeString(error));
  Finish(record);
  ReleaseRequest(message);
  return seen;
}

PeerExchange Peer::TakeModels(const std::string& command, bool is_ready, const std::string& error) {
  const Handle message = TakeRequest(command);
  auto* record = region.As<records::ModelLoader>(region.As<records::Message>(message)->args);
  PeerExchange seen{};
  const auto* request = region.As<records::ModelLoaderRequest>(record->message);
  seen.name = ReadString(request->name);
  seen.version = ReadString(request->version);
  seen.config = ReadString(request->config);
  seen.unload_dependents = request->unload_dependents;
  seen.files = ReadDict(request->files);
  WakeSpuriously(&record->mutex, &record->condition);
  record->is_model_ready = is_ready;
  if (!error.empty()) SetError(record, MakeString(error));
  Finish(record);
  ReleaseRequest(message);
  return seen;
}

std::uint64_t Peer::TakeStreamCancel() {
  const Handle message = TakeRequest("CancelStream");
  auto* record = region.As<records::CancelStream>(region.As<records::Message>(message)->args);
  const std::uint64_t stream = record->stream_id;
  WakeSpuriously(&record->mutex, &record->condition);
  record->is_cancelled = true;
  Finish(record);
  ReleaseRequest(message);
  return stream;
}

PeerQuery Peer::TakeCancelQuery(bool cancelled) {
  const Handle message = TakeRequest("IsRequestCancelled");
  auto* query = region.As<records::IsCancelled>(region.As<records::Message>(message)->args);
  const PeerQuery seen{query->response_factory_address, query->request_address};
  WakeSpuriously(&query->mutex, &query->condition);
  query->is_cancelled = cancelled;
  Finish(query);
  ReleaseRequest(message);
  return seen;
}

// Before 23.11 responses of streams have no command; the field is uninitialised.
Handle Peer::MakeInlineMessage(const std::string& command, Handle args) {
  const Handle message = Own(sizeof(records::Message));
  const Handle mutex = Own(sizeof(pthread_mutex_t));
  const Handle condition = Own(sizeof(pthread_cond_t));
  InitShared(region.As<pthread_mutex_t>(mutex));
  InitShared(region.As<pthread_cond_t>(condition));
  const int number = layouts.HasCommand(command) ? layouts.NumberOf(command) : 0x5A5A;
  *region.As<records::Message>(message) = {number, args, true, 0, mutex, condition};
  return message;
}

void Peer::PutResponse(const Fields& batch, const PeerResponse& response) {
  const Handle handle = MakeResponse(response);
  std::memcpy(batch.Of<char>("mutex") + batch.size(), &handle, sizeof(handle));
}

void Peer::PutFailure(const Fields& batch, const std::optional<std::string>& error) {
  batch.Put("has_error", true);
  batch.Put("is_error_set", error.has_value());
  if (error) batch.Put("error", MakeString(*error));
}

void Peer::SendStreamResponse(const PeerResponse& response) {
  SendStreamWith([&](const Fields& batch) { PutResponse(batch, response); });
}

void Peer::SendStreamFailure(const std::optional<std::string>& error) {
  SendStreamWith([&](const Fields& batch) { PutFailure(batch, error); });
}

void Peer::SendStreamWith(const std::function<void(const Fields&)>& fill) {
  const Handle block = Make("ResponseBatch", sizeof(Handle));
  const Fields batch = FieldsOf("ResponseBatch", block);
  fill(batch);
  const Handle message = MakeInlineMessage("InferStreamExecResponse", block);
  auto* mutex = region.As<pthread_mutex_t>(region.As<records::Message>(message)->response_mutex);
  auto* condition = region.As<pthread_cond_t>(region.As<records::Message>(message)->response_cond);
  auto* waiting = batch.Of<records::Flag>("waiting_on_stub");
  pthread_mutex_lock(mutex);
  to_stub_messages.Push(message);
  WaitUntil(waiting, true, mutex, condition);
  if (layouts.release() < 2305) {
    pthread_mutex_unlock(mutex);
    WakeSpuriously(mutex, condition);
    CHECK_EQ(region.References(message), 2u);  // the stub waits for the second acknowledgement
    pthread_mutex_lock(mutex);
    *waiting = false;
    pthread_cond_broadcast(condition);
  }
  pthread_mutex_unlock(mutex);
}

Handle Peer::MakeProbe() {
  const Handle args = Own(sizeof(records::UserModelReadiness));
  std::memset(region.At(args), 0, sizeof(records::UserModelReadiness));
  return MakeInlineMessage("UserModelReadinessRequest", args);
}

Handle Peer::SendProbe() {
  const Handle message = MakeProbe();
  to_stub_messages.Push(message);
  return region.As<records::Message>(message)->args;
}

bool Peer::ProbeReadiness(std::string* error) {
  const Handle message = MakeProbe();
  const Handle args = region.As<records::Message>(message)->args;
  auto* record = region.As<records::UserModelReadiness>(args);
  auto* mutex = region.As<pthread_mutex_t>(region.As<records::Message>(message)->response_mutex);
  auto* condition = region.As<pthread_cond_t>(region.As<records::Message>(message)->response_cond);
  pthread_mutex_lock(mutex);
  to_stub_messages.Push(message);
  WaitUntil(&record->waiting_on_stub, true, mutex, condition);
  CHECK(record->function_exists);
  CHECK_EQ(record->has_error, record->is_error_set);
  if (record->has_error) *error = ReadString(record->error);
  const bool is_ready = record->is_ready;
  pthread_mutex_unlock(mutex);
  WakeSpuriously(mutex, condition);
  CHECK_EQ(region.References(args), 2u);  // the stub waits for the acknowledgement
  pthread_mutex_lock(mutex);
  record->waiting_on_stub = false;
  pthread_cond_broadcast(condition);
  pthread_mutex_unlock(mutex);
  return is_ready;
}

std::optional<std::string> Peer::OfferCudaPool(const std::string& handle, int device) {
  const Handle args = Own(sizeof(records::CudaMemoryPool));
  auto* pool = region.As<records::CudaMemoryPool>(args);
  std::memset(static_cast<void*>(pool), 0, sizeof(*pool));
  handle.copy(pool->cuda_handle, sizeof(pool->cuda_handle));
  pool->device_id = device;
  const Handle message = MakeInlineMessage("CudaPoolInitializeRequest", args);
  auto* lock = region.As<pthread_mutex_t>(region.As<records::Message>(message)->response_mutex);
  auto* changed = region.As<pthread_cond_t>(region.As<records::Message>(message)->response_cond);
  pthread_mutex_lock(lock);
  to_stub_messages.Push(message);
  WaitUntil(&pool->waiting_on_stub, true, lock, changed);
  CHECK_EQ(pool->has_error, pool->is_error_set);
  std::optional<std::string> error;
  if (pool->has_error) error = ReadString(pool->error);
  pthread_mutex_unlock(lock);
  WakeSpuriously(lock, changed);
  CHECK_EQ(region.References(message), 2u);  // the stub waits for the acknowledgement
  pthread_mutex_lock(lock);
  pool->waiting_on_stub = false;
  pthread_cond_broadcast(changed);
  pthread_mutex_unlock(lock);
  return error;
}

void Peer::SendLoadGpuBuffers(Handle buffers) {
  Send("LoadGpuBuffers", buffers);
  CHECK_EQ(from_stub_answers.Pop(), 0);
}

// In the server's order: first the message for the answer, then the buffers, then the answer, which the stub
// reads until it notifies the condition.
PeerInferRequest Peer::ServeInferWith(const std::function<void(const Fields&)>& fill, Handle buffers) {
  const Handle message = request_queue().Pop();
  auto* record = region.As<records::Message>(message);
  const bool decoupled = record->command == layouts.NumberOf("InferStreamExecRequest");
  CHECK(decoupled || record->command == layouts.NumberOf("InferExecRequest"));
  CHECK(record->inline_response);
  const Fields batch = FieldsOf("RequestBatch", record->args);
  CHECK_EQ(batch.Get<std::uint32_t>("batch_size"), 1u);
  const PeerInferRequest seen = ReadInferRequest(*region.As<Handle>(record->args, batch.size()), decoupled);
  // The stub releases its references as soon as it wakes up, when this side still holds the mutex.
  const Handle needed[] = {message, record->args, record->response_mutex, record->response_cond};
  for (const Handle handle : needed) region.AddReference(handle);
  auto* mutex = region.As<pthread_mutex_t>(record->response_mutex);
  auto* condition = region.As<pthread_cond_t>(record->response_cond);
  const auto wake_and_wait = [&] {
    pthread_cond_broadcast(condition);
    const timespec limit = In(TimeoutSeconds() * 1000);
    CHECK_EQ(pthread_cond_timedwait(condition, mutex, &limit), 0);
  };
  WakeSpuriously(mutex, condition);
  pthread_mutex_lock(mutex);
  const Handle answer = Own(sizeof(records::Message));
  record->response_handle = answer;
  if (buffers != 0) {
    PutBuffers(batch, buffers);
    wake_and_wait();
  }
  const Handle block = Make("ResponseBatch", sizeof(Handle));
  fill(FieldsOf("ResponseBatch", block));
  region.As<records::Message>(answer)->args = block;
  wake_and_wait();
  pthread_mutex_unlock(mutex);
  for (const Handle handle : needed) region.Release(handle);
  return seen;
}

// Before 23.06 the record of a batch contains the count, and the handles lie in a block without it.
void Peer::PutBuffers(const Fields& batch, Handle buffers) {
  if (layouts.release() >= 2306) {
    batch.Put("gpu_buffers", buffers);
    return;
  }
  const auto count = *region.As<std::uint64_t>(buffers);
  const Handle list = Own(count * sizeof(Handle));
  Copy(region.At(list), region.At(buffers, sizeof(count)), count * sizeof(Handle));
  batch.Put("gpu_buffers", list);
  batch.Put("gpu_buffers_count", static_cast<std::uint32_t>(count));
}

PeerInferRequest Peer::ServeInfer(const PeerResponse& response, Handle buffers) {
  return ServeInferWith([&](const Fields& batch) { PutResponse(batch, response); }, buffers);
}

void Peer::RefuseInfer(const std::optional<std::string>& error) {
  ServeInferWith([&](const Fields& batch) { PutFailure(batch, error); }, 0);
}

}  // namespace envpack::test
