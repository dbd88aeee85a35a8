#include "abi/common_wire.h"

namespace envpack::abi {

CommonWire::CommonWire(const Launch& launch, Release release)
    : Session<Wire>(launch, release),
      plain_reader_(region_),
      to_server_(region_, control().stub_to_parent_mq) {}

void CommonWire::Log(const LogLine& line) {
  PlainWriter writer(region_);
  records::Log record{};
  record.file = writer.WriteString(line.file);
  record.line = line.line;
  record.message = writer.WriteString(line.message);
  record.level = static_cast<std::int32_t>(line.level);
  Exchange(writer, CommandKind::kLogRequest, record, [](const records::Log&) {});
}

bool CommonWire::IsCancelled(const Origin& origin) {
  PlainWriter writer(region_);
  records::IsCancelled record{};
  record.response_factory_address = origin.response_factory;
  record.request_address = origin.request;
  bool cancelled = false;
  Exchange(writer, CommandKind::kIsRequestCancelled, record,
           [&](const records::IsCancelled& answer) { cancelled = answer.is_cancelled; });
  return cancelled;
}

void CommonWire::CancelStream(StreamId stream) {
  PlainWriter writer(region_);
  records::CancelStream record{};
  record.stream_id = stream;
  Exchange(writer, CommandKind::kCancelStream, record, [](const records::CancelStream&) {});
}

// The field is padding in the releases that do not ask.
void CommonWire::OfferReadiness() {
  if (Has(Feature::kReadiness)) control().has_readiness = true;
}

CommonWire::Call CommonWire::MakeCall(PlainWriter& writer, CommandKind kind, Handle args) {
  const shm::Block& mutex = writer.MakeAligned(sizeof(pthread_mutex_t));
  const shm::Block& condition = writer.MakeAligned(sizeof(pthread_cond_t));
  shm::InitMutex(mutex.As<pthread_mutex_t>());
  shm::InitCondition(condition.As<pthread_cond_t>());
  records::Message message = MakeMessage(kind, args);
  message.inline_response = true;
  message.response_mutex = mutex.handle();
  message.response_cond = condition.handle();
  return {writer.Put(message).handle(), mutex.As<pthread_mutex_t>(), condition.As<pthread_cond_t>()};
}

// One-way: the server only says that it has seen it.
void CommonWire::SendCleanup(CommandKind kind, std::int64_t id) {
  PlainWriter writer(region_);
  records::Cleanup record{};
  record.id = id;
  const shm::Block& block = writer.Put(record);
  const Call call = MakeCall(writer, kind, block.handle());
  const auto* cleanup = block.As<records::Cleanup>();
  shm::Lock lock(call.mutex);
  to_server_.Push(call.message);
  while (!cleanup->waiting_on_stub) lock.Wait(call.condition);
}

void CommonWire::EndStream(StreamId stream) {
  SendCleanup(CommandKind::kStreamCleanup, static_cast<std::int64_t>(stream));
}

// A MetricFamily or Metric record travels in this envelope. Returns a copy of it as the server has filled it.
records::CustomMetrics CommonWire::AskMetrics(PlainWriter& writer, CommandKind kind, Handle message) {
  records::CustomMetrics record{};
  record.message = message;
  return AskOrThrow(writer, kind, record);
}

ServerAddress CommonWire::CreateMetricFamily(const MetricFamily& family) {
  PlainWriter writer(region_);
  records::MetricFamily record{};
  record.name = writer.WriteString(family.name);
  record.description = writer.WriteString(family.description);
  record.kind = static_cast<std::int32_t>(family.kind);
  const Handle handle = writer.Put(record).handle();
  return AskMetrics(writer, CommandKind::kMetricFamilyRequestNew, handle).address;
}

void CommonWire::DeleteMetricFamily(ServerAddress family) {
  PlainWriter writer(region_);
  records::MetricFamily record{};
  record.name = record.description = writer.WriteString("");  // the server reads them whatever it is asked
  record.metric_family_address = family;
  const Handle handle = writer.Put(record).handle();
  AskMetrics(writer, CommandKind::kMetricFamilyRequestDelete, handle);
}

bool CommonWire::AskModels(CommandKind kind, const ModelToLoad& model, const std::string& version,
                           bool unload_dependents) {
  PlainWriter writer(region_);
  records::ModelLoaderRequest request{};
  request.name = writer.WriteString(model.name);
  request.version = writer.WriteString(version);
  request.unload_dependents = unload_dependents;
  request.config = writer.WriteString(model.config);
  request.files = writer.WriteDict(model.files);
  records::ModelLoader record{};
  record.message = writer.Put(request).handle();
  return AskOrThrow(writer, kind, record).is_model_ready;
}

void CommonWire::LoadModel(const ModelToLoad& model) {
  AskModels(CommandKind::kLoadModelRequest, model, "", false);
}

void CommonWire::UnloadModel(const std::string& name, bool unload_dependents) {
  AskModels(CommandKind::kUnloadModelRequest, ModelToLoad{name, "", {}}, "", unload_dependents);
}

bool CommonWire::IsModelReady(const std::string& name, const std::string& version) {
  return AskModels(CommandKind::kModelReadinessRequest, ModelToLoad{name, "", {}}, version, false);
}

}  // namespace envpack::abi
