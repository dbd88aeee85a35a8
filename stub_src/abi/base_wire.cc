#include "abi/base_wire.h"

#include <chrono>
#include <utility>
#include <variant>

namespace envpack::abi {

BaseWire::BaseWire(const Launch& launch, Release release, GpuMemory& gpu, std::shared_ptr<Journal> journal)
    : BaseSession<Wire>(launch, release, std::move(journal)),
      gpu_(gpu),
      reader_(region_),
      to_server_(region_, control().stub_to_parent_mq, journal_->mark(QueueId::kToServer)) {}

void BaseWire::Log(const LogLine& line) {
  Writer writer(region_);
  records::Log record{};
  record.file = writer.WriteString(line.file);
  record.line = line.line;
  record.message = writer.WriteString(line.message);
  record.level = static_cast<std::int32_t>(line.level);
  Exchange(writer, CommandKind::kLogRequest, record, [](const records::Log&) {});
}

bool BaseWire::IsCancelled(const Origin& origin) {
  Writer writer(region_);
  records::IsCancelled record{};
  record.response_factory_address = origin.response_factory;
  record.request_address = origin.request;
  bool cancelled = false;
  Exchange(writer, CommandKind::kIsRequestCancelled, record,
           [&](const records::IsCancelled& answer) { cancelled = answer.is_cancelled; });
  return cancelled;
}

void BaseWire::CancelStream(StreamId stream) {
  Writer writer(region_);
  records::CancelStream record{};
  record.stream_id = stream;
  Exchange(writer, CommandKind::kCancelStream, record, [](const records::CancelStream&) {});
}

// Earlier releases have padding in place of the field.
void BaseWire::EnableReadinessProbes() {
  if (Has(Feature::kReadiness)) control().has_readiness = true;
}

// A one-way message: the server only acknowledges it. `request` is the one whose factory is deleted.
void BaseWire::SendCleanup(CommandKind kind, std::int64_t id, std::int64_t request) {
  Writer writer(region_);
  records::Cleanup record{};
  record.id = id;
  const shm::Block& block = writer.Put(record);
  const Call call = MakeCall(writer, kind, block.handle());
  const auto* cleanup = block.As<records::Cleanup>();
  writer.Finish();
  const forks::Undisturbed undisturbed;
  NotedExchange noted(*journal_, Exchange::kReported,
                      {call.message, block.handle(), call.mutex_block, 0, request});
  shm::Lock lock(call.mutex);
  to_server_.Push(call.message, noted.pushed());
  while (!cleanup->waiting_on_stub) lock.Wait(call.condition);
}

void BaseWire::DeleteResponseFactory(const Origin& origin) {
  if (numbers_.Of(CommandKind::kResponseFactoryCleanup) == CommandNumbers::kNone) return;
  SendCleanup(CommandKind::kResponseFactoryCleanup, origin.response_factory, origin.request);
  journal_->Close(origin.request);
}

void BaseWire::EndStream(StreamId stream) {
  SendCleanup(CommandKind::kStreamCleanup, static_cast<std::int64_t>(stream));
  journal_->CloseStream(stream);
}

// `message`: a MetricFamily or a Metric. Returns the enclosing record as the server has filled it.
records::CustomMetrics BaseWire::ExchangeMetrics(Writer& writer, CommandKind kind, Handle message) {
  records::CustomMetrics record{};
  record.message = message;
  return ExchangeOrThrow(writer, kind, record);
}

ServerAddress BaseWire::CreateMetricFamily(const MetricFamily& family) {
  Writer writer(region_);
  records::MetricFamily record{};
  record.name = writer.WriteString(family.name);
  record.description = writer.WriteString(family.description);
  record.kind = static_cast<std::int32_t>(family.kind);
  const Handle handle = writer.Put(record).handle();
  return ExchangeMetrics(writer, CommandKind::kMetricFamilyRequestNew, handle).address;
}

void BaseWire::DeleteMetricFamily(ServerAddress family) {
  Writer writer(region_);
  records::MetricFamily record{};
  record.name = record.description = writer.WriteString("");  // the server reads them for every command
  record.metric_family_address = family;
  const Handle handle = writer.Put(record).handle();
  ExchangeMetrics(writer, CommandKind::kMetricFamilyRequestDelete, handle);
}

bool BaseWire::ExchangeModelControl(CommandKind kind, const ModelToLoad& model, const std::string& version,
                                    bool unload_dependents) {
  Writer writer(region_);
  records::ModelLoaderRequest request{};
  request.name = writer.WriteString(model.name);
  request.version = writer.WriteString(version);
  request.unload_dependents = unload_dependents;
  request.config = writer.WriteString(model.config);
  request.files = writer.WriteDict(model.files);
  records::ModelLoader record{};
  record.message = writer.Put(request).handle();
  return ExchangeOrThrow(writer, kind, record).is_model_ready;
}

void BaseWire::LoadModel(const ModelToLoad& model) {
  ExchangeModelControl(CommandKind::kLoadModelRequest, model, "", false);
}

void BaseWire::UnloadModel(const std::string& name, bool unload_dependents) {
  ExchangeModelControl(CommandKind::kUnloadModelRequest, ModelToLoad{name, "", {}}, "", unload_dependents);
}

bool BaseWire::IsModelReady(const std::string& name, const std::string& version) {
  return ExchangeModelControl(CommandKind::kModelReadinessRequest, ModelToLoad{name, "", {}}, version, false);
}

// The server's thread waits for the result, so an error must be reported as well.
void BaseWire::AttachPool(const records::Message& message) {
  const shm::Block block = region_.Load(message.args);
  auto* pool = block.As<records::CudaMemoryPool>();
  IpcHandle handle;
  shm::CopyBytes(handle.data(), pool->cuda_handle, handle.size());
  const auto failure = Attempt([&] { gpu_.AttachPool(pool->device_id, handle); });
  Writer writer(region_);
  if (failure) {
    pool->has_error = true;
    pool->is_error_set = !Attempt([&] { pool->error = writer.WriteString(failure->text); });
  }
  const shm::Block mutex = region_.Load(message.response_mutex);
  const shm::Block condition = region_.Load(message.response_cond);
  writer.Finish();
  shm::Lock lock(mutex.As<pthread_mutex_t>());
  pool->waiting_on_stub = true;
  shm::Notify(condition.As<pthread_cond_t>());
  while (pool->waiting_on_stub) lock.Wait(condition.As<pthread_cond_t>());
}

namespace {

// The server waits for an answer for five seconds; after that it acknowledges none.
constexpr std::chrono::seconds kTimeout(5);

// `wanted` is one of `kWires`.
template <Release... kWires>
std::unique_ptr<Wire> OpenOneOf(std::integer_sequence<Release, kWires...>, Release wanted,
                                const Launch& launch, Release release, GpuMemory& gpu,
                                std::shared_ptr<Journal> journal) {
  std::unique_ptr<Wire> wire;
  const auto open = [&](Release epoch, auto function) {
    if (epoch == wanted) wire = function(launch, release, gpu, std::move(journal));
  };
  (open(kWires, &OpenEpoch<kWires>), ...);
  return wire;
}

}  // namespace

// From 26.03 on.
ReadinessProbe BaseWire::ReadProbe(const records::Message& message) {
  const auto load = [&](Handle handle) { return std::make_shared<const shm::Block>(region_.Load(handle)); };
  return [this, block = load(message.args), mutex = load(message.response_mutex),
          notified = load(message.response_cond)](const ReadinessAnswer& answer) {
    Writer writer(region_);
    auto* record = block->As<records::UserModelReadiness>();
    auto* condition = notified->As<pthread_cond_t>();
    const auto* failure = std::get_if<Failure>(&answer);
    Handle error = 0;  // stays so if the region is full
    if (failure != nullptr) Attempt([&] { error = writer.WriteString(failure->text); });
    writer.Finish();
    shm::Lock lock(mutex->As<pthread_mutex_t>());
    record->function_exists = true;
    if (failure != nullptr) {
      record->has_error = true;
      record->is_error_set = error != 0;
      record->error = error;
    } else {
      record->is_ready = std::get<bool>(answer);
    }
    record->waiting_on_stub = true;
    shm::Notify(condition);
    const auto limit = std::chrono::system_clock::now() + kTimeout;
    while (record->waiting_on_stub && lock.WaitUntil(condition, limit)) {
    }
  };
}

std::unique_ptr<Wire> OpenWire(const Launch& launch, Release release, GpuMemory& gpu,
                               std::shared_ptr<Journal> journal) {
  return OpenOneOf(BuiltWires(), WireEpochOf(RequireBuilt(release)), launch, release, gpu,
                   std::move(journal));
}

}  // namespace envpack::abi
