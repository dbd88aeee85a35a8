#include "local/local_wire.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>
#include <variant>

#include "forks.h"
#include "local/values.h"

namespace envpack::local {

namespace {

std::uint64_t Bits(std::int64_t value) { return static_cast<std::uint64_t>(value); }

class LocalReadinessProbe final : public abi::ReadinessProbe {
 public:
  LocalReadinessProbe(Connection& connection, std::uint64_t id) : connection_(connection), id_(id) {}

  void Answer(const abi::ReadinessAnswer& answer) override {
    const auto* failure = std::get_if<abi::Failure>(&answer);
    Packer packer;
    Pack(packer, failure != nullptr ? std::optional(*failure) : std::nullopt);
    packer.Add(std::uint64_t{failure == nullptr && std::get<bool>(answer)});
    connection_.Send(Kind::kIsReady, id_, packer);
  }

 private:
  Connection& connection_;
  const std::uint64_t id_;
};

Packer PackedText(const std::string& text) {
  Packer packer;
  packer.Add(text);
  return packer;
}

Packer PackedNumber(std::uint64_t number) {
  Packer packer;
  packer.Add(number);
  return packer;
}

}  // namespace

LocalWire::LocalWire(int socket, abi::GpuMemory& gpu) : gpu_(gpu), connection_(socket) {
  const std::optional<Message> start = connection_.Receive();
  if (!start || start->kind != Kind::kStart) throw std::runtime_error("envpack has not said what to run");
  Unpacker unpacker(start->bytes);
  launch_.model_file = unpacker.Text();
  launch_.backend_directory = unpacker.Text();
  launch_.name = unpacker.Text();
  launch_.runtime_directory = "DEFAULT";
  launch_.server_pid = getppid();
  release_ = static_cast<abi::Release>(unpacker.Number());
  uses_environment_ = unpacker.Number() != 0;
  receiver_ = std::thread([this] { Run(); });
  pthread_setname_np(receiver_.native_handle(), "pbstub-local");
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
      return abi::AutoCompleteCommand{unpacker.Text()};
    case Kind::kInitialize:
      return ReadInitialize(unpacker);
    case Kind::kExecute: {
      abi::ExecuteCommand command;
      const std::lock_guard lock(mutex_);
      batch_.clear();
      for (std::uint64_t left = unpacker.Number(); left > 0; --left) {
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
  decoupled_ = unpacker.Number() != 0;
  launch_.name = unpacker.Text();
  abi::InitializeCommand command;
  for (std::uint64_t left = unpacker.Number(); left > 0; --left) {
    std::string name = unpacker.Text();
    command.arguments.emplace(std::move(name), unpacker.Text());
  }
  return command;
}

void LocalWire::AnswerAutoComplete(const abi::AutoCompleteAnswer& answer) {
  const auto* failure = std::get_if<abi::Failure>(&answer);
  Packer packer;
  Pack(packer, failure != nullptr ? std::optional(*failure) : std::nullopt);
  packer.Add(failure != nullptr ? std::string() : std::get<std::string>(answer));
  connection_.Send(Kind::kCompleted, 0, packer);
}

void LocalWire::AnswerInitialize(const abi::InitializeAnswer& answer) {
  Packer packer;
  Pack(packer, answer);
  packer.Add(std::uint64_t{has_readiness_});
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
    packer.Add(std::uint64_t{batch_[i].release_flags});
    const bool has_response = responses != nullptr && i < responses->size() && (*responses)[i];
    packer.Add(std::uint64_t{has_response});
    if (has_response) Pack(packer, *(*responses)[i], gpu_);
  }
  lock.unlock();
  connection_.Send(Kind::kExecuted, 0, packer);
}

void LocalWire::Log(const abi::LogLine& line) {
  Packer packer;
  packer.Add(Bits(static_cast<std::int64_t>(line.level)));
  packer.Add(line.message);
  packer.Add(line.file);
  packer.Add(Bits(line.line));
  connection_.Send(Kind::kLog, 0, packer);
}

void LocalWire::Send(const abi::Origin& origin, const std::optional<abi::Response>& response,
                     std::uint32_t flags) {
  Packer packer;
  packer.Add(Bits(origin.request));
  packer.Add(std::uint64_t{flags});
  packer.Add(std::uint64_t{response.has_value()});
  if (response) Pack(packer, *response, gpu_);
  Ask(Kind::kSend, packer);
}

void LocalWire::DeleteResponseFactory(const abi::Origin& origin) {
  Ask(Kind::kDeleteFactory, PackedNumber(Bits(origin.request)));
}

bool LocalWire::IsCancelled(const abi::Origin& origin) {
  return AskForNumber(Kind::kIsCancelled, PackedNumber(Bits(origin.request))) != 0;
}

void LocalWire::SetReleaseFlags(const abi::Origin& origin, std::uint32_t flags) {
  const std::lock_guard lock(mutex_);
  for (ReceivedRequest& request : batch_) {
    if (request.address == origin.request) request.release_flags = flags;
  }
}

abi::InferResponse LocalWire::Infer(const abi::Request& request, bool decoupled) {
  Packer packer;
  packer.Add(std::uint64_t{decoupled});
  Pack(packer, request, gpu_);
  const Message answer = Ask(Kind::kInfer, packer);
  Unpacker unpacker(answer.bytes);
  unpacker.Number();  // no error
  const abi::StreamId stream = unpacker.Number();
  const bool is_last = unpacker.Number() != 0;
  return {UnpackResponse(unpacker, answer.owner), stream, is_last};
}

void LocalWire::EndStream(abi::StreamId stream) { Ask(Kind::kEndStream, PackedNumber(stream)); }

void LocalWire::CancelStream(abi::StreamId stream) { Ask(Kind::kCancelStream, PackedNumber(stream)); }

abi::Tensor LocalWire::Allocate(const abi::Tensor& tensor) {
  const std::shared_ptr<char> bytes(new char[tensor.byte_size], std::default_delete<char[]>());
  abi::Tensor allocated = tensor;
  allocated.data = bytes.get();
  allocated.owner = bytes;
  return allocated;
}

abi::ServerAddress LocalWire::CreateMetricFamily(const abi::MetricFamily& family) {
  Packer packer;
  packer.Add(family.name);
  packer.Add(family.description);
  packer.Add(Bits(static_cast<std::int64_t>(family.kind)));
  return AskForNumber(Kind::kCreateMetricFamily, packer);
}

void LocalWire::DeleteMetricFamily(abi::ServerAddress family) {
  Ask(Kind::kDeleteMetricFamily, PackedNumber(family));
}

abi::ServerAddress LocalWire::CreateMetric(abi::ServerAddress family, const abi::Metric& metric) {
  Packer packer;
  packer.Add(family);
  packer.Add(metric.labels);
  packer.Add(std::uint64_t{metric.buckets.has_value()});
  packer.Add(metric.buckets ? metric.buckets->size() : 0);
  for (const double bound : metric.buckets.value_or(std::vector<double>())) packer.AddFraction(bound);
  return AskForNumber(Kind::kCreateMetric, packer);
}

void LocalWire::DeleteMetric(abi::ServerAddress metric) { Ask(Kind::kDeleteMetric, PackedNumber(metric)); }

void LocalWire::ChangeMetric(abi::ServerAddress metric, abi::MetricChange change, double value) {
  Packer packer;
  packer.Add(metric);
  packer.Add(Bits(static_cast<std::int64_t>(change)));
  packer.AddFraction(value);
  Ask(Kind::kChangeMetric, packer);
}

double LocalWire::MetricValue(abi::ServerAddress metric) {
  const Message answer = Ask(Kind::kMetricValue, PackedNumber(metric));
  Unpacker unpacker(answer.bytes);
  unpacker.Number();  // no error
  return unpacker.Fraction();
}

void LocalWire::LoadModel(const abi::ModelToLoad& model) {
  Packer packer;
  packer.Add(model.name);
  packer.Add(model.config);
  packer.Add(model.files.size());
  for (const auto& [path, content] : model.files) {
    packer.Add(path);
    packer.Add(content);
  }
  Ask(Kind::kLoadModel, packer);
}

void LocalWire::UnloadModel(const std::string& name, bool unload_dependents) {
  Packer packer = PackedText(name);
  packer.Add(std::uint64_t{unload_dependents});
  Ask(Kind::kUnloadModel, packer);
}

bool LocalWire::IsModelReady(const std::string& name, const std::string& version) {
  Packer packer = PackedText(name);
  packer.Add(version);
  return AskForNumber(Kind::kIsModelReady, packer) != 0;
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
  const abi::StreamId stream = unpacker.Number();
  const bool is_last = unpacker.Number() != 0;
  return abi::InferResponse{UnpackResponse(unpacker, message.owner), stream, is_last};
}

// There is no region, so tensors lie in the memory of this process.
std::uint64_t LocalWire::FreeBytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

Message LocalWire::Ask(Kind kind, const Packer& content) {
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
  if (unpacker.Number() != 0) throw abi::ServerError(unpacker.Text());
  return answer;
}

std::uint64_t LocalWire::AskForNumber(Kind kind, const Packer& content) {
  const Message answer = Ask(kind, content);
  Unpacker unpacker(answer.bytes);
  unpacker.Number();  // no error
  return unpacker.Number();
}

}  // namespace envpack::local
