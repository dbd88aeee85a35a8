#include "peer.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "check.h"

namespace envpack::test {

namespace {

void InitShared(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void InitShared(pthread_cond_t* condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

// memcpy for sizes that may be 0, when there may be no address at all.
void Copy(void* to, const void* from, std::size_t size) {
  if (size != 0) std::memcpy(to, from, size);
}

timespec In(int milliseconds) {
  timespec when{};
  clock_gettime(CLOCK_REALTIME, &when);
  when.tv_sec += milliseconds / 1000;
  when.tv_nsec += milliseconds % 1000 * 1000000L;
  if (when.tv_nsec >= 1000000000L) {
    ++when.tv_sec;
    when.tv_nsec -= 1000000000L;
  }
  return when;
}

void WaitUntil(const bool* flag, bool value, pthread_mutex_t* mutex, pthread_cond_t* condition) {
  const timespec limit = In(20000);
  while (*static_cast<const volatile bool*>(flag) != value) {
    if (pthread_cond_timedwait(condition, mutex, &limit) == ETIMEDOUT) {
      pthread_mutex_unlock(mutex);
      throw Failed("the stub does not acknowledge");
    }
  }
}

}  // namespace

struct PeerQueue::Record {
  sem_t empty;
  sem_t full;
  pthread_mutex_t mutex;
  std::uint64_t size;
  Handle slots;
  std::uint32_t head;
  std::uint32_t tail;
};

PeerQueue::PeerQueue(PeerRegion& region, std::uint64_t slots)
    : region_(&region), record_(region.Create(128)), slots_(region.Create(slots * sizeof(std::int64_t))) {
  static_assert(sizeof(Record) == 128);
  Record* made = record();
  sem_init(&made->empty, 1, static_cast<unsigned>(slots));
  sem_init(&made->full, 1, 0);
  InitShared(&made->mutex);
  made->size = slots;
  made->slots = slots_;
  made->head = made->tail = 0;
}

PeerQueue::Record* PeerQueue::record() { return region_->As<Record>(record_); }

void PeerQueue::Push(std::int64_t value) {
  Record* queue = record();
  const timespec limit = In(20000);
  if (sem_timedwait(&queue->empty, &limit) != 0) throw Failed("the queue stays full");
  pthread_mutex_lock(&queue->mutex);
  region_->As<std::int64_t>(slots_)[queue->head] = value;
  queue->head = static_cast<std::uint32_t>((queue->head + 1) % queue->size);
  pthread_mutex_unlock(&queue->mutex);
  sem_post(&queue->full);
}

std::optional<std::int64_t> PeerQueue::TryPop(int milliseconds) {
  Record* queue = record();
  const timespec limit = In(milliseconds);
  while (sem_timedwait(&queue->full, &limit) != 0) {
    if (errno != EINTR) return std::nullopt;
  }
  pthread_mutex_lock(&queue->mutex);
  const std::int64_t value = region_->As<std::int64_t>(slots_)[queue->tail];
  queue->tail = static_cast<std::uint32_t>((queue->tail + 1) % queue->size);
  pthread_mutex_unlock(&queue->mutex);
  sem_post(&queue->empty);
  return value;
}

std::int64_t PeerQueue::Pop(int seconds) {
  const auto value = TryPop(seconds * 1000);
  if (!value) throw Failed("nothing came within " + std::to_string(seconds) + " s");
  return *value;
}

// The control record comes first, so that it has the handle that every real server gives it.
Peer::Peer(const Options& options)
    : region(options.size),
      control(region.Create(sizeof(records::Control))),
      to_stub_commands(region, options.slots),
      from_stub_answers(region, options.slots),
      from_stub_requests(region, options.slots),
      to_stub_unasked(region, options.slots),
      memory_manager(region, options.slots) {
  auto* record = region.As<records::Control>(control);
  std::memset(static_cast<void*>(record), 0, sizeof(*record));
  record->decoupled = options.decoupled;
  InitShared(&record->parent_health_mutex);
  InitShared(&record->stub_health_mutex);
  record->stub_message_queue = to_stub_commands.handle();
  record->parent_message_queue = from_stub_answers.handle();
  record->stub_to_parent_mq = from_stub_requests.handle();
  record->parent_to_stub_mq = to_stub_unasked.handle();
  record->memory_manager_message_queue = memory_manager.handle();
}

bool Peer::BeatsAgain() {
  auto* record = region.As<records::Control>(control);
  const auto locked = [record](bool reset) {
    pthread_mutex_lock(&record->stub_health_mutex);
    const bool before = record->stub_health;
    if (reset) record->stub_health = false;
    pthread_mutex_unlock(&record->stub_health_mutex);
    return before;
  };
  locked(true);
  for (int i = 0; i < 20; ++i) {
    usleep(50000);
    if (locked(false)) return true;
  }
  return false;
}

Handle Peer::Own(std::size_t size) {
  owned_.push_back(region.Create(size));
  return owned_.back();
}

void Peer::Drop() {
  for (const Handle handle : owned_) region.Release(handle);
  owned_.clear();
}

Handle Peer::MakeString(const std::string& text) {
  const Handle data = Own(text.size());
  std::memcpy(region.At(data), text.data(), text.size());
  const Handle record = Own(sizeof(records::String));
  *region.As<records::String>(record) = {data, text.size()};
  return record;
}

Handle Peer::MakeDict(const std::map<std::string, std::string>& entries) {
  const Handle pairs = Own(entries.size() * sizeof(records::Pair));
  std::size_t at = 0;
  for (const auto& [key, value] : entries) {
    const records::Pair pair{MakeString(key), MakeString(value)};
    std::memcpy(region.At(pairs, at), &pair, sizeof(pair));
    at += sizeof(pair);
  }
  const Handle record = Own(sizeof(records::Dict));
  *region.As<records::Dict>(record) = {static_cast<std::uint32_t>(entries.size()), pairs};
  return record;
}

Handle Peer::MakeTensor(const PeerTensor& tensor) {
  records::Memory memory{};
  memory.byte_size = tensor.bytes.size();
  std::string data(reinterpret_cast<const char*>(&memory), sizeof(memory));
  data += tensor.bytes;
  Handle apart = 0;
  if (tensor.apart) {
    apart = Own(data.size());
    std::memcpy(region.At(apart), data.data(), data.size());
    data.clear();
  }
  const records::Tensor head{apart, tensor.dtype, tensor.dims.size()};
  const records::String name{0x5A5A5A, tensor.name.size()};
  std::string whole(reinterpret_cast<const char*>(&head), sizeof(head));
  for (const std::int64_t dim : tensor.dims) whole.append(reinterpret_cast<const char*>(&dim), sizeof(dim));
  whole.append(reinterpret_cast<const char*>(&name), sizeof(name));
  whole += tensor.name + data;
  const Handle block = Own(whole.size());
  std::memcpy(region.At(block), whole.data(), whole.size());
  return block;
}

Handle Peer::MakeRequest(const PeerRequest& request) {
  records::Request record{};
  record.input_count = static_cast<std::uint32_t>(request.inputs.size());
  record.requested_output_count = static_cast<std::uint32_t>(request.outputs.size());
  record.model_version = 1;
  record.flags = 3;
  record.timeout_us = 1500000;
  record.response_factory_address = request.response_factory;
  record.model_name = MakeString("model");
  record.request_id = MakeString(request.id);
  record.parameters = MakeString(request.parameters);
  record.correlation_id = Own(sizeof(records::CorrelationId));
  *region.As<records::CorrelationId>(record.correlation_id) = {MakeString(""), 77, 0};
  record.trace = Own(sizeof(records::Trace));
  *region.As<records::Trace>(record.trace) = {MakeString(""), 0};
  std::vector<Handle> tail;
  for (const std::string& output : request.outputs) tail.push_back(MakeString(output));
  for (const PeerTensor& input : request.inputs) tail.push_back(MakeTensor(input));
  const Handle block = Own(sizeof(record) + tail.size() * sizeof(Handle));
  *region.As<records::Request>(block) = record;
  Copy(region.At(block, sizeof(record)), tail.data(), tail.size() * sizeof(Handle));
  return block;
}

Handle Peer::MakeBatch(const std::vector<PeerRequest>& requests) {
  std::vector<Handle> handles;
  for (const PeerRequest& request : requests) handles.push_back(MakeRequest(request));
  const Handle batch = Own(sizeof(records::RequestBatch) + handles.size() * sizeof(Handle));
  *region.As<records::RequestBatch>(batch) = {static_cast<std::uint32_t>(handles.size()), 0};
  Copy(region.At(batch, sizeof(records::RequestBatch)), handles.data(), handles.size() * sizeof(Handle));
  return batch;
}

Handle Peer::Send(records::CommandNumber number, Handle args) {
  const Handle message = Own(sizeof(records::Message));
  auto* record = region.As<records::Message>(message);
  record->command = number;
  record->args = args;
  record->inline_response = false;
  to_stub_commands.Push(message);
  return message;
}

Handle Peer::SendAutoComplete(const std::string& config) {
  return Send(records::CommandNumber::kAutoCompleteRequest, MakeString(config));
}

Handle Peer::SendInitialize(const std::map<std::string, std::string>& arguments) {
  return Send(records::CommandNumber::kInitializeRequest, MakeDict(arguments));
}

Handle Peer::SendExecute(const std::vector<PeerRequest>& requests) {
  return Send(records::CommandNumber::kExecuteRequest, MakeBatch(requests));
}

Handle Peer::SendFinalize() { return Send(records::CommandNumber::kFinalizeRequest, 0x5A5A5A); }

Handle Peer::SendCommand(std::int32_t number) { return Send(static_cast<records::CommandNumber>(number), 0); }

Handle Peer::Expect(records::CommandNumber number) {
  const Handle message = from_stub_answers.Pop();
  region.AddReference(message);
  CHECK_EQ(static_cast<int>(region.As<records::Message>(message)->command), static_cast<int>(number));
  return message;
}

void Peer::Acknowledge(Handle message) {
  region.Release(message);
  to_stub_commands.Push(0);
}

std::string Peer::ReadString(Handle handle) {
  const auto* record = region.As<records::String>(handle);
  return {region.At(record->data), record->length};
}

std::optional<std::string> Peer::TakeInitialize() {
  const Handle message = Expect(records::CommandNumber::kInitializeResponse);
  const auto* answer = region.As<records::InitializeResponse>(region.As<records::Message>(message)->args);
  std::optional<std::string> error;
  CHECK_EQ(answer->has_error, answer->is_error_set);
  if (answer->has_error) error = ReadString(answer->error);
  Acknowledge(message);
  return error;
}

std::optional<std::string> Peer::TakeAutoComplete(std::string* config) {
  const Handle message = Expect(records::CommandNumber::kAutoCompleteResponse);
  const auto* answer = region.As<records::AutoCompleteResponse>(region.As<records::Message>(message)->args);
  std::optional<std::string> error;
  CHECK_EQ(answer->has_error, answer->is_error_set);
  CHECK_EQ(answer->has_error, !answer->has_model_config);
  if (answer->has_error) error = ReadString(answer->error);
  if (answer->has_model_config) *config = ReadString(answer->model_config);
  Acknowledge(message);
  return error;
}

PeerTensor Peer::ReadTensor(Handle handle) {
  const auto head = *region.As<records::Tensor>(handle);
  PeerTensor tensor{"", head.dtype, std::vector<std::int64_t>(head.dims_count), ""};
  std::size_t at = sizeof(head);
  Copy(tensor.dims.data(), region.At(handle, at), head.dims_count * sizeof(std::int64_t));
  at += head.dims_count * sizeof(std::int64_t);
  records::String name;
  std::memcpy(&name, region.At(handle, at), sizeof(name));
  at += sizeof(name);
  tensor.name.assign(region.At(handle, at), name.length);
  at += name.length;
  records::Memory memory;
  CHECK_EQ(head.memory, 0);
  std::memcpy(&memory, region.At(handle, at), sizeof(memory));
  CHECK_EQ(memory.memory_type, 0);
  CHECK_EQ(memory.memory_type_id, 0);
  CHECK_EQ(memory.use_cuda_shared_pool, false);
  CHECK_EQ(memory.release_id, 0u);
  tensor.bytes.assign(region.At(handle, at + sizeof(memory)), memory.byte_size);
  return tensor;
}

PeerResponse Peer::ReadResponse(Handle handle) {
  const auto record = *region.As<records::Response>(handle);
  PeerResponse response;
  CHECK_EQ(record.has_error, record.is_error_set);
  if (record.has_error) {
    const auto* error = region.As<records::Error>(record.error);
    response.error = ReadString(error->message);
    response.code = error->code;
  }
  for (std::uint32_t i = 0; i < record.outputs_size; ++i) {
    const Handle output = *region.As<Handle>(handle, sizeof(record) + i * sizeof(Handle));
    response.outputs.push_back(ReadTensor(output));
  }
  return response;
}

// The batch is read from behind the message, whatever `args` says.
ExecuteAnswer Peer::TakeExecute() {
  const Handle message = Expect(records::CommandNumber::kExecuteResponse);
  const auto* batch = region.As<records::ResponseBatch>(message, sizeof(records::Message));
  ExecuteAnswer answer;
  CHECK_EQ(batch->has_error, batch->is_error_set);
  answer.factories_deleted = batch->is_response_factory_deleted;
  if (batch->has_error) answer.error = ReadString(batch->error);
  constexpr std::size_t kHandles = sizeof(records::Message) + sizeof(records::ResponseBatch);
  for (std::uint32_t i = 0; i < batch->batch_size; ++i) {
    const Handle response = *region.As<Handle>(message, kHandles + i * sizeof(Handle));
    answer.responses.push_back(response == 0 ? PeerResponse{} : ReadResponse(response));
  }
  Acknowledge(message);
  return answer;
}

bool Peer::TakeFinalize(Handle sent) {
  const Handle message = from_stub_answers.Pop();
  return message == sent &&
         region.As<records::Message>(message)->command == records::CommandNumber::kFinalizeResponse;
}

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
