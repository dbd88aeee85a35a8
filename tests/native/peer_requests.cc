// What the stub asks for by itself, served as the server does; and what the server starts by itself.
#include <pthread.h>

#include <cstring>

#include "check.h"
#include "peer.h"
#include "peer_sync.h"

namespace envpack::test {

Handle Peer::TakeRequest(int number) {
  const Handle message = from_stub_requests.Pop();
  region.AddReference(message);
  CHECK_EQ(static_cast<int>(region.As<records::Message>(message)->command), number);
  region.AddReference(region.As<records::Message>(message)->args);
  return message;
}

void Peer::ReleaseRequest(Handle message) {
  region.Release(region.As<records::Message>(message)->args);
  region.Release(message);
}

LogLine Peer::TakeLog() {
  const Handle message = TakeRequest(16);
  auto* log = region.As<records::Log>(region.As<records::Message>(message)->args);
  const LogLine line{ReadString(log->file), log->line, ReadString(log->message), log->level};
  pthread_mutex_lock(&log->mutex);
  log->waiting_on_stub = true;
  pthread_cond_broadcast(&log->condition);
  WaitUntil(&log->waiting_on_stub, false, &log->mutex, &log->condition);
  pthread_mutex_unlock(&log->mutex);
  ReleaseRequest(message);
  return line;
}

SentResponse Peer::TakeSent(const std::string& error, Handle buffers) {
  const Handle message = TakeRequest(12);
  auto* record = region.As<records::ResponseSend>(region.As<records::Message>(message)->args);
  SentResponse sent{std::nullopt, record->flags, record->response_factory_address};
  if (record->response != 0) sent.response = ReadResponse(record->response);
  pthread_mutex_lock(&record->mutex);
  if (buffers != 0) {
    record->gpu_buffers = buffers;
    record->is_stub_turn = true;
    pthread_cond_broadcast(&record->condition);
    WaitUntil(&record->is_stub_turn, false, &record->mutex, &record->condition);
  }
  if (!error.empty()) {
    record->has_error = record->is_error_set = true;
    record->error = MakeString(error);
  }
  record->is_stub_turn = true;
  pthread_cond_broadcast(&record->condition);
  WaitUntil(&record->is_stub_turn, false, &record->mutex, &record->condition);
  pthread_mutex_unlock(&record->mutex);
  ReleaseRequest(message);
  return sent;
}

std::int64_t Peer::TakeFactoryCleanup() {
  const Handle message = TakeRequest(18);
  const auto* record = region.As<records::Message>(message);
  CHECK(record->inline_response);
  auto* cleanup = region.As<records::Cleanup>(record->args);
  const std::int64_t factory = cleanup->id;
  auto* mutex = region.As<pthread_mutex_t>(record->response_mutex);
  auto* condition = region.As<pthread_cond_t>(record->response_cond);
  region.AddReference(record->response_mutex);
  region.AddReference(record->response_cond);
  pthread_mutex_lock(mutex);
  cleanup->waiting_on_stub = true;
  pthread_cond_broadcast(condition);
  pthread_mutex_unlock(mutex);
  region.Release(record->response_mutex);
  region.Release(record->response_cond);
  ReleaseRequest(message);
  return factory;
}

std::int64_t Peer::TakeCancelQuery(bool cancelled) {
  const Handle message = TakeRequest(30);
  auto* query = region.As<records::IsCancelled>(region.As<records::Message>(message)->args);
  const std::int64_t factory = query->response_factory_address;
  pthread_mutex_lock(&query->mutex);
  query->is_cancelled = cancelled;
  query->waiting_on_stub = true;
  pthread_cond_broadcast(&query->condition);
  WaitUntil(&query->waiting_on_stub, false, &query->mutex, &query->condition);
  pthread_mutex_unlock(&query->mutex);
  ReleaseRequest(message);
  return factory;
}

std::optional<std::string> Peer::OfferCudaPool(const std::string& handle, int device) {
  const Handle args = Own(sizeof(records::CudaMemoryPool));
  auto* pool = region.As<records::CudaMemoryPool>(args);
  std::memset(static_cast<void*>(pool), 0, sizeof(*pool));
  handle.copy(pool->cuda_handle, sizeof(pool->cuda_handle));
  pool->device_id = device;
  const Handle message = Own(sizeof(records::Message));
  const Handle mutex = Own(sizeof(pthread_mutex_t));
  const Handle condition = Own(sizeof(pthread_cond_t));
  InitShared(region.As<pthread_mutex_t>(mutex));
  InitShared(region.As<pthread_cond_t>(condition));
  *region.As<records::Message>(message) = {
      records::CommandNumber::kCudaPoolInitializeRequest, args, true, 0, mutex, condition};
  auto* lock = region.As<pthread_mutex_t>(mutex);
  auto* changed = region.As<pthread_cond_t>(condition);
  pthread_mutex_lock(lock);
  to_stub_unasked.Push(message);
  WaitUntil(&pool->waiting_on_stub, true, lock, changed);
  CHECK_EQ(pool->has_error, pool->is_error_set);
  std::optional<std::string> error;
  if (pool->has_error) error = ReadString(pool->error);
  pool->waiting_on_stub = false;
  pthread_cond_broadcast(changed);
  pthread_mutex_unlock(lock);
  return error;
}

void Peer::SendLoadGpuBuffers(Handle buffers) {
  Send(records::CommandNumber::kLoadGpuBuffers, buffers);
  CHECK_EQ(from_stub_answers.Pop(), 0);
}

// In the server's order: first the message that will hold the answer, then buffers, then the answer itself,
// which is the stub's to read until it wakes us.
PeerAsked Peer::ServeInfer(const PeerResponse& response, Handle buffers) {
  const Handle message = from_stub_requests.Pop();
  auto* record = region.As<records::Message>(message);
  const int number = static_cast<int>(record->command);
  CHECK(number == 8 || number == 9);
  CHECK(record->inline_response);
  const Handle answer = Own(sizeof(records::Message));
  record->response_handle = answer;
  auto* batch = region.As<records::RequestBatch>(record->args);
  CHECK_EQ(batch->batch_size, 1u);
  const Handle request = *region.As<Handle>(record->args, sizeof(records::RequestBatch));
  const auto asked = *region.As<records::Request>(request);
  PeerAsked seen{number == 9, ReadString(asked.model_name), ReadString(asked.request_id), {}, {}};
  std::size_t at = sizeof(records::Request);
  for (std::uint32_t i = 0; i < asked.requested_output_count; ++i, at += sizeof(Handle)) {
    seen.outputs.push_back(ReadString(*region.As<Handle>(request, at)));
  }
  for (std::uint32_t i = 0; i < asked.input_count; ++i, at += sizeof(Handle)) {
    seen.inputs.push_back(ReadTensor(*region.As<Handle>(request, at)));
  }
  // The stub gives its own back as soon as it is awake, when this side has still to leave the lock.
  const Handle needed[] = {message, record->args, record->response_mutex, record->response_cond};
  for (const Handle handle : needed) region.AddReference(handle);
  auto* mutex = region.As<pthread_mutex_t>(record->response_mutex);
  auto* condition = region.As<pthread_cond_t>(record->response_cond);
  const auto wake_and_wait = [&] {
    pthread_cond_broadcast(condition);
    const timespec limit = In(20000);
    CHECK_EQ(pthread_cond_timedwait(condition, mutex, &limit), 0);
  };
  pthread_mutex_lock(mutex);
  if (buffers != 0) {
    batch->gpu_buffers = buffers;
    wake_and_wait();
  }
  const Handle block = Own(sizeof(records::ResponseBatch) + sizeof(Handle));
  *region.As<records::ResponseBatch>(block) = {};
  *region.As<Handle>(block, sizeof(records::ResponseBatch)) = MakeResponse(response);
  region.As<records::Message>(answer)->args = block;
  wake_and_wait();
  pthread_mutex_unlock(mutex);
  for (const Handle handle : needed) region.Release(handle);
  return seen;
}

}  // namespace envpack::test
