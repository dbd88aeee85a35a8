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

SentResponse Peer::TakeSent(const std::string& error) {
  const Handle message = TakeRequest(12);
  auto* record = region.As<records::ResponseSend>(region.As<records::Message>(message)->args);
  SentResponse sent{std::nullopt, record->flags, record->response_factory_address};
  if (record->response != 0) sent.response = ReadResponse(record->response);
  pthread_mutex_lock(&record->mutex);
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

std::string Peer::OfferCudaPool() {
  const Handle args = Own(sizeof(records::CudaMemoryPool));
  auto* pool = region.As<records::CudaMemoryPool>(args);
  std::memset(static_cast<void*>(pool), 0, sizeof(*pool));
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
  CHECK(pool->has_error && pool->is_error_set);
  std::string error = ReadString(pool->error);
  pool->waiting_on_stub = false;
  pthread_cond_broadcast(changed);
  pthread_mutex_unlock(lock);
  return error;
}

}  // namespace envpack::test
