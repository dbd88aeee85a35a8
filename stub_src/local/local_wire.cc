#include "local/local_wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>
#include <variant>

#include "base/forks.h"
#include "base/threads.h"
#include "local/values.h"

namespace envpack::local {

namespace {

class LocalReadinessProbe final : public abi::ReadinessProbe {
 public:
  LocalReadinessProbe(Connection& connection, std::uint64_t id) : connection_(connection), id_(id) {}

  void Answer(const abi::ReadinessAnswer& answer) override {
    const auto* failure = std::get_if<abi::Failure>(&answer);
    Packer packer;
    Pack(packer, failure != nullptr ? std::optional(*failure) : std::nullopt);
    packer(failure == nullptr && std::get<bool>(answer));
    connection_.Send(Kind::kIsReady, id_, packer);
  }

 private:
  Connection& connection_;
  const std::uint64_t id_;
};

}  // namespace

LocalWire::LocalWire(int socket, abi::GpuMemory& gpu) : gpu_(gpu), connection_(socket) {
  const std::optional<Message> start = connection_.Receive();
  if (!start || start->kind != Kind::kStart) throw std::runtime_error("envpack has not said what to run");
  Unpacker unpacker(start->bytes);
  unpacker(launch_.model_file, launch_.backend_directory, launch_.name, release_, uses_environment_);
  launch_.runtime_directory = "DEFAULT";
  launch_.server_pid = getppid();
  receiver_ = StartThread("pbstub-local", [this] { Run(); });
}

// The thread waits for messages, so it cannot be joined.
LocalWire::~LocalWire() { receiver_.detach(); }

// Without the host nothing that this process does has an effect.
void LocalWire::Run() {
  try {
    while (std::optional<Message> message = connection_.Receive()) Sort(*std::move(message));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
  }
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
  }
  _exit(1);
}

void LocalWire::Sort(Message message) {
  const std::lock_guard lock(mutex_);
  if (message.kind == Kind::kAnswer) {
    for (Waiting& waiting : waiting_) {
      if (waiting.id != message.id) continue;
      waiting.answer = std::move(message);
      return waiting.arrived.notify_one();
    }
    return;
  }
  const bool is_command = message.kind < Kind::kAnswer;
  (is_command ? commands_ : server_messages_).push_back(std::move(message));
  arrived_.notify_all();
}

abi::Command LocalWire::Receive() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !commands_.empty(); });
  const Message message = std::move(commands_.front());
  commands_.pop_front();
  lock.unlock();
  return ReadCommand(message);
}

abi::Command LocalWire::ReadCommand(const Message& message) {
  Unpacker unpacker(message.bytes);
  switch (message.kind) {
    case Kind::kAutoComplete:
      return abi::AutoCompleteCommand{unpacker.Next<std::string>()};
    case Kind::kInitialize:
      return ReadInitialize(unpacker);
    case Kind::kExecute: {
      abi::ExecuteCommand command;
      const std::lock_guard lock(mutex_);
      batch_.clear();
      for (auto left = unpacker.Next<std::uint64_t>(); left > 0; --left) {
        command.requests.push_back(UnpackRequest(unpacker, message.owner));
        batch_.push_back({command.requests.back().origin.request, abi::kReleaseAll});
      }
      return command;
    }
    case Kind::kFinalize:
      return abi::FinalizeCommand{};
    default:
      return abi::UnknownCommand{static_cast<std::int32_t>(message.kind)};
  }
}

abi::Command LocalWire::ReadInitialize(Unpacker& unpacker) {
  abi::InitializeCommand command;
  unpacker(decoupled_, launch_.name, command.arguments);
  return command;
}

void LocalWire::AnswerAutoComplete(const abi::AutoCompleteAnswer& answer) {
  const auto* failure = std::get_if<abi::Failure>(&answer);
  Packer packer;
  Pack(packer, failure != nullptr ? std::optional(*failure) : std::nullopt);
  packer(failure != nullptr ? std::string() : std::get<std::string>(answer));
  connection_.Send(Kind::kCompleted, 0, packer);
}

void LocalWire::AnswerInitialize(const abi::InitializeAnswer& answer) {
  Packer packer;
  Pack(packer, answer);
  packer(has_readiness_);
  connection_.Send(Kind::kInitialized, 0, packer);
}

void LocalWire::AnswerFinalize() {
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  connection_.Send(Kind::kFinalized, 0, Packer());
}

// For each request whether there is a response, and what becomes of the request.
void LocalWire::AnswerExecute(const abi::ExecuteAnswer& answer) {
  const auto* failure = std::get_if<abi::ExecuteFailure>(&answer);
  const auto* responses = std::get_if<std::vector<std::optional<abi::Response>>>(&answer);
  Packer packer;
  Pack(packer, failure != nullptr ? std::optional(abi::Failure{failure->text}) : std::nullopt);
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    const bool has_response = responses != nullptr && i < responses->size() && (*responses)[i];
    packer(batch_[i].release_flags, has_response);
    if (has_response) Pack(packer, *(*responses)[i], gpu_);
  }
  lock.unlock();
  connection_.Send(Kind::kExecuted, 0, packer);
}

void LocalWire::Log(const abi::LogLine& line) {
  connection_.Send(Kind::kLog, 0, Packed(line.level, line.message, line.file, line.line));
}

void LocalWire::Send(const abi::Origin& origin, const std::optional<abi::Response>& response,
                     std::uint32_t flags) {
  Packer packer = Packed(origin.request, flags, response.has_value());
  if (response) Pack(packer, *response, gpu_);
  Ask(Kind::kSend, packer);
}

void LocalWire::DeleteResponseFactory(const abi::Origin& origin) {
  Ask(Kind::kDeleteFactory, Packed(origin.request));
}

bool LocalWire::IsCancelled(const abi::Origin& origin) {
  return AskFor<bool>(Kind::kIsCancelled, Packed(origin.request));
}

void LocalWire::SetReleaseFlags(const abi::Origin& origin, std::uint32_t flags) {
  const std::lock_guard lock(mutex_);
  for (ReceivedRequest& request : batch_) {
    if (request.address == origin.request) request.release_flags = flags;
  }
}

abi::InferResponse LocalWire::Infer(const abi::Request& request, bool decoupled) {
  Packer packer = Packed(decoupled);
  Pack(packer, request, gpu_);
  Answer answer = Ask(Kind::kInfer, packer);
  return UnpackInferResponse(answer.content, answer.owner);
}

void LocalWire::EndStream(abi::StreamId stream) { Ask(Kind::kEndStream, Packed(stream)); }

void LocalWire::CancelStream(abi::StreamId stream) { Ask(Kind::kCancelStream, Packed(stream)); }

abi::Tensor LocalWire::Allocate(const abi::Tensor& tensor) {
  const std::shared_ptr<char> bytes(new char[tensor.byte_size], std::default_delete<char[]>());
  abi::Tensor allocated = tensor;
  allocated.data = bytes.get();
  allocated.owner = bytes;
  return allocated;
}

abi::ServerAddress LocalWire::CreateMetricFamily(const abi::MetricFamily& family) {
  return AskFor<abi::ServerAddress>(Kind::kCreateMetricFamily,
                                    Packed(family.name, family.description, family.kind));
}

void LocalWire::DeleteMetricFamily(abi::ServerAddress family) {
  Ask(Kind::kDeleteMetricFamily, Packed(family));
}

abi::ServerAddress LocalWire::CreateMetric(abi::ServerAddress family, const abi::Metric& metric) {
  return AskFor<abi::ServerAddress>(Kind::kCreateMetric,
                                    Packed(family, metric.labels, metric.buckets.has_value(),
                                           metric.buckets.value_or(std::vector<double>())));
}

void LocalWire::DeleteMetric(abi::ServerAddress metric) { Ask(Kind::kDeleteMetric, Packed(metric)); }

void LocalWire::ChangeMetric(abi::ServerAddress metric, abi::MetricChange change, double value) {
  Ask(Kind::kChangeMetric, Packed(metric, change, value));
}

double LocalWire::MetricValue(abi::ServerAddress metric) {
  return AskFor<double>(Kind::kMetricValue, Packed(metric));
}

void LocalWire::LoadModel(const abi::ModelToLoad& model) {
  Ask(Kind::kLoadModel, Packed(model.name, model.config, model.files));
}

void LocalWire::UnloadModel(const std::string& name, bool unload_dependents) {
  Ask(Kind::kUnloadModel, Packed(name, unload_dependents));
}

bool LocalWire::IsModelReady(const std::string& name, const std::string& version) {
  return AskFor<bool>(Kind::kIsModelReady, Packed(name, version));
}

bool LocalWire::ServeServerMessage(const abi::ServerMessageHandler& handler) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !server_messages_.empty(); });
  const Message message = std::move(server_messages_.front());
  server_messages_.pop_front();
  lock.unlock();
  handler(ReadServerMessage(message));
  return true;
}

abi::ServerMessage LocalWire::ReadServerMessage(const Message& message) {
  if (message.kind == Kind::kReadiness) {
    return std::make_unique<LocalReadinessProbe>(connection_, message.id);
  }
  Unpacker unpacker(message.bytes);
  return UnpackInferResponse(unpacker, message.owner);
}

// There is no region, so tensors lie in the memory of this process.
std::uint64_t LocalWire::FreeBytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

LocalWire::Answer LocalWire::Ask(Kind kind, const Packer& content) {
  if (forks::Depth() > 0) {
    throw abi::ServerError("A process that the model has forked can only reach a server, and this is none.");
  }
  std::unique_lock lock(mutex_);
  const auto waiting = waiting_.emplace(waiting_.end(), ++last_id_);
  lock.unlock();
  connection_.Send(kind, waiting->id, content);
  lock.lock();
  waiting->arrived.wait(lock, [&] { return waiting->answer.has_value(); });
  Message answer = *std::move(waiting->answer);
  waiting_.erase(waiting);
  lock.unlock();
  Unpacker unpacker(answer.bytes);
  if (unpacker.Next<bool>()) throw abi::ServerError(unpacker.Next<std::string>());
  return {std::move(answer.owner), unpacker};
}

}  // namespace envpack::local
